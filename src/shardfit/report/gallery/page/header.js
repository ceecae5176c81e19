// The line on top: what survey this is, how far it is, how fast, and its best point so far.

import { byId, el } from "./dom.js";
import { duration, short, whole } from "./numbers.js";

// a survey that is complete has the badge of its verdict
const STATES = {
  running: ["running", "good"],
  paused: ["not running", "warn"],
  waiting: ["waiting for the first point", "plain"],
};

export class Header {
  constructor(facts) {
    byId("name").textContent = facts.name || "Survey";
    document.title = `${facts.name || "Survey"} · shardfit`;
    this.total = facts.total;
  }

  show({ points, progress, state }) {
    const { done, failed } = progress;
    const [word, tone] = progress.badge ?? STATES[progress.state];
    byId("badge").textContent = word;
    byId("badge").className = `badge ${tone}`;
    const share = (n) => `${(100 * n) / Math.max(1, this.total)}%`;
    byId("done").style.width = share(done - failed);
    byId("lost").style.width = share(failed);
    byId("progress").setAttribute("aria-valuenow", String(Math.round((100 * done) / Math.max(1, this.total))));
    byId("figures").replaceChildren(...this.figures(points, progress, state));
  }

  figures(points, { done, failed, converged, rate, eta, age, state: phase }, { sort, descending }) {
    const figure = (value, label) =>
      el("div.figure", {}, el("b", { textContent: value }), el("span", { textContent: label }));
    const made = [figure(`${whole(done)} / ${whole(this.total)}`, "points")];
    if (done) made.push(figure(`${Math.floor((100 * converged) / done)} %`, "converged"));
    if (failed) made.push(figure(whole(failed), "failed"));
    if (rate) made.push(figure(short(rate, 3), "points / s"));
    if (eta) made.push(figure(duration(eta), "to go"));
    if (phase === "paused") made.push(figure(duration(age), "since the last point"));
    const [best] = points.count ? points.order(sort, descending) : [];
    const column = points.column(sort);
    if (best !== undefined)
      made.push(
        figure(column.show(points.value(sort, best), short), `${descending ? "highest" : "lowest"} ${column.label}`),
      );
    return made;
  }

  trouble(text) {
    byId("badge").textContent = text;
    byId("badge").className = "badge bad";
  }
}
