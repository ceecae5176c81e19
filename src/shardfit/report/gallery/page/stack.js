// The column on the right: how many points are selected, their mean and standard deviation, what can be downloaded.

import { byId, el, settled } from "./dom.js";
import { short, whole } from "./numbers.js";

export class Stack {
  constructor(app) {
    this.app = app;
    this.fetchSoon = settled(180, () => this.fetch());
  }

  show({ points, selection, state, facts, progress }) {
    const { rows, total } = selection;
    byId("selected").textContent = whole(rows.length);
    const plain = rows.length === 1 ? "selected point" : "selected points";
    const known = rows.length < total ? `best of ${whole(total)} selected points` : plain;
    const partly = this.app.source.live && points.count < progress.done; // the rest is on its way
    const soFar = `so far: ${whole(points.count)} of ${whole(progress.done)} points are loaded`;
    byId("selected-of").textContent = partly ? `${known} ${soFar}` : known;
    const asked = points.asked(state);
    const key = JSON.stringify([asked, state.align, selection.rows.length, selection.rows[0]]);
    if (key === this.key) return;
    this.key = key;
    this.asked = asked;
    this.align = state.align;
    this.downloads();
    if (facts.shape) this.fetchSoon();
  }

  async fetch() {
    this.waiting?.abort();
    this.waiting = new AbortController();
    const { selection } = this.app.view;
    if (!selection.rows.length) return this.empty();
    byId("stack").classList.add("loading");
    if (!byId("stack").childElementCount) byId("stack-note").textContent = "Mean and spread are being added up…";
    try {
      const found = await this.app.source.stack(this.asked, this.align, this.waiting.signal);
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
    const none = "Nothing is selected: widen a range, or start over with Reset.";
    byId("stack-note").textContent = this.app.points.count ? none : "";
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
    const { facts, points, selection } = this.app.view;
    if (!points.count) return byId("downloads").replaceChildren();
    const links = [link(source.table(this.asked), "Table (CSV)")];
    if (facts.configured && selection.rows.length)
      links.push(link(source.points(this.asked, "toml"), "Configuration (TOML)"));
    if (facts.shape && selection.rows.length) {
      const box = el("input", { type: "checkbox", checked: this.align });
      box.onchange = () => this.app.change({ align: box.checked });
      links.unshift(el("label", { title: "shift pictures onto the first before the mean" }, box, "Align pictures"));
      links.push(
        link(source.points(this.asked, "fits"), "Pictures (FITS)"),
        link(source.stackArray(this.asked, this.align, "mean"), "Mean (NPY)"),
        link(source.stackArray(this.asked, this.align, "sd"), "SD (NPY)"),
      );
    }
    if (this.app.writable && selection.rows.length) links.push(this.tagger());
    return byId("downloads").replaceChildren(...links);
  }

  // a field that gives all selected points a tag
  tagger() {
    const name = el("input", { type: "text", placeholder: "tag", ariaLabel: "tag", maxLength: 60 });
    const send = async (remove) => {
      const { points, selection } = this.app.view;
      const ids = Array.from(selection.rows, (row) => points.value("id", row));
      if (name.value.trim())
        this.app.mark(await this.app.source.mark({ points: ids, tag: name.value.trim(), remove }));
    };
    const give = el("button", { textContent: "Tag them", onclick: () => send(false) });
    const take = el("button", { textContent: "Untag", onclick: () => send(true) });
    return el("div.tagger", {}, name, give, take);
  }
}
