// The column on the right: how many points are selected, their mean and standard deviation, what can be downloaded.

import { byId, el, settled } from "./dom.js";
import { short, whole } from "./numbers.js";

export class Stack {
  constructor(app) {
    this.app = app;
    this.fetchSoon = settled(180, () => this.fetch());
  }

  show({ points, selection, state, facts }) {
    const { rows, total } = selection;
    byId("selected").textContent = whole(rows.length);
    const plain = rows.length === 1 ? "selected point" : "selected points";
    byId("selected-of").textContent = rows.length < total ? `best of ${whole(total)} selected points` : plain;
    const asked = points.asked(state);
    const key = JSON.stringify([asked, selection.rows.length, selection.rows[0]]);
    if (key === this.key) return;
    this.key = key;
    this.asked = asked;
    this.downloads();
    if (facts.shape) this.fetchSoon();
  }

  async fetch() {
    this.waiting?.abort();
    this.waiting = new AbortController();
    const { selection } = this.app.view;
    if (!selection.rows.length) return this.empty();
    byId("stack").classList.add("loading");
    try {
      const found = await this.app.source.stack(this.asked, this.waiting.signal);
      byId("stack").classList.remove("loading");
      this.draw(found);
    } catch (error) {
      if (error.name !== "AbortError") byId("stack-note").textContent = error.message;
    }
    return undefined;
  }

  empty() {
    byId("stack").classList.remove("loading");
    byId("stack").replaceChildren();
    byId("stack-note").textContent = "Nothing is selected: widen a range, or start over with Reset.";
  }

  draw(found) {
    const { facts } = this.app.view;
    const panel = (name, label) => {
      const picture = el("img.picture", { src: `data:image/png;base64,${found[name]}`, alt: label });
      picture.style.aspectRatio = `${facts.shape[1]} / ${facts.shape[0]}`;
      const peak = `≤ ${short(found.highest[name], 3)} ${facts.picture_unit}`;
      return el(
        "figure",
        {},
        picture,
        el("figcaption", {}, el("b", { textContent: label }), el("span", { textContent: peak })),
      );
    };
    byId("stack").replaceChildren(panel("mean", "Mean"), panel("sd", "Std deviation"));
    byId("stack-note").textContent = this.note(found);
  }

  note(found) {
    if (!this.app.source.live) return `Of the best ${whole(found.count)} points by ${found.by}, whatever is selected.`;
    return found.count < this.app.view.selection.rows.length ? `Of the best ${whole(found.count)} of them.` : "";
  }

  saveTable() {
    const { points, selection } = this.app.view;
    const address = URL.createObjectURL(new Blob([points.csv(selection.rows)], { type: "text/csv" }));
    el("a", { href: address, download: "points.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }

  downloads() {
    const { source } = this.app;
    const link = (href, text) => el("a", { href, download: "", textContent: text });
    if (!source.live) {
      const table = el("button", { textContent: "Table (CSV)", onclick: () => this.saveTable() });
      return byId("downloads").replaceChildren(table, el("span.soft", { textContent: source.leftOut }));
    }
    const links = [link(source.table(this.asked), "Table (CSV)")];
    const { facts, selection } = this.app.view;
    if (facts.shape && selection.rows.length) {
      links.push(
        link(source.stackArray(this.asked, "mean"), "Mean (NPY)"),
        link(source.stackArray(this.asked, "sd"), "SD (NPY)"),
      );
    }
    return byId("downloads").replaceChildren(...links);
  }
}
