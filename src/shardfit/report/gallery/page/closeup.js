// One point large, or several side by side, in a dialog. Arrows go through the selection, Escape closes.

import { byId, el, settled } from "./dom.js";
import { short } from "./numbers.js";

export class CloseUp {
  constructor(app) {
    this.app = app;
    this.box = byId("closeup");
    this.box.onkeydown = (event) => this.key(event);
    this.box.onclick = (event) => {
      if (event.target === this.box) this.box.close(); // beside the dialog's content
    };
    this.box.onclose = () => {
      this.row = null;
      this.leave();
      this.app.change({ open: null });
    };
    this.drawSoon = settled(300, (...asked) => this.draw(...asked)); // arrows go through many points
  }

  // nobody waits for the figures of the last point any more
  leave() {
    this.waiting?.abort();
    this.waiting = null;
  }

  open(row) {
    this.row = row;
    this.leave();
    const { points, selection } = this.app.view;
    const rank = selection.rows.indexOf(row);
    const id = points.value("id", row);
    if (this.app.state.open !== id) this.app.change({ open: id });
    const title = el("h2", { textContent: `Point ${id}` });
    const place = el("span.soft", { textContent: rank < 0 ? "" : `${rank + 1} of ${selection.rows.length}` });
    const step = (by, sign, name) =>
      el("button.step", { textContent: sign, ariaLabel: name, onclick: () => this.go(by), disabled: rank < 0 });
    const pinned = this.app.state.pinned.includes(id);
    const pin = el("button", {
      textContent: pinned ? "Do not compare" : "Compare",
      onclick: () => this.app.pin(id) || this.open(row),
    });
    const head = el(
      "header",
      {},
      step(-1, "←", "previous"),
      step(1, "→", "next"),
      title,
      place,
      el("span.grow"),
      ...this.links(row, id),
      pin,
      this.closer(),
    );
    const facts = [
      ["Figures", ["value", "part"]],
      ["Axes", ["axis"]],
      ["Run", ["run"]],
    ].map(([name, roles]) => this.facts(name, roles, row));
    const picture = this.app.view.facts.shape ? this.framed(row) : null;
    const [more, drawn] = [el("section.more"), el("section.drawn")];
    const left = el("div", {}, picture, drawn);
    this.fill(head, el("div.single", {}, left, el("div.facts", {}, ...facts, more)));
    this.tell(id, more, points.value("failed", row) ? null : drawn);
  }

  // data against model and residuals, as the survey's science draws them; why: what stands in the way
  async draw(id, box, why) {
    if (!box.isConnected) return;
    const title = el("h3", { textContent: "Data and model" });
    const say = (text) => box.replaceChildren(title, el("p.soft", { textContent: text }));
    if (why) return void say(why);
    this.waiting = new AbortController();
    box.replaceChildren(title, el("p.soft.busy", { textContent: "is being drawn…" }));
    try {
      const found = await this.app.source.figures(id, this.waiting.signal);
      const shown = found.figures.map(({ caption, png }) => {
        const picture = el("img", { src: `data:image/png;base64,${png}`, alt: caption });
        return el("figure", {}, picture, el("figcaption", { textContent: caption }));
      });
      if (found.why) say(`It cannot be drawn: ${found.why}`);
      else box.replaceChildren(title, el("div.figures", {}, ...shown));
    } catch (error) {
      if (error.name !== "AbortError") say(error.message);
    }
  }

  // what only the ledger and its configuration know: how to run the point again, tags, note
  async tell(id, box, drawn) {
    const { source, points } = this.app;
    const tags = Object.keys(points.tags).filter((name) => points.tags[name].has(id));
    const parts = [el("h3", { textContent: "Tags and note" })];
    parts.push(el("p", { textContent: tags.join(", ") || (points.notes[id] ? "" : "none") }));
    if (this.app.writable) parts.push(this.editor(id));
    else if (points.notes[id]) parts.push(el("p.note", { textContent: points.notes[id] }));
    box.replaceChildren(...parts);
    if (!source.live) return;
    try {
      const found = await source.point(id);
      if (drawn) this.drawSoon(id, drawn, found.why);
      if (!found.command) return;
      box.append(
        el("h3", { textContent: "Run it again" }),
        el("pre", { textContent: found.command }),
        el("details", {}, el("summary", { textContent: "Exact configuration" }), el("pre", { textContent: found.configuration })),
      );
    } catch (error) {
      box.append(el("p.bad", { textContent: error.message }));
    }
  }

  editor(id) {
    const { points, source } = this.app;
    const note = el("textarea", { value: points.notes[id] ?? "", placeholder: "note", ariaLabel: "note", rows: 2 });
    note.onkeydown = (event) => event.stopPropagation(); // arrows move in the text
    const keep = async () => this.app.mark(await source.mark({ points: [id], note: note.value }));
    return el("div.tagger", {}, note, el("button", { textContent: "Keep note", onclick: keep }));
  }

  compare(ids) {
    this.row = null;
    const { points, facts } = this.app.view;
    const rows = ids.map((id) => points.rowOf.get(id)).filter((row) => row !== undefined);
    const scales = this.app.source.live ? "one colour scale for all" : "each with its own colour scale";
    const title = [el("h2", { textContent: "Side by side" }), el("span.soft", { textContent: scales })];
    const head = el("header", {}, ...title, el("span.grow"), this.closer());
    const beside = { with: ids.join() };
    const columns = points.telling.filter((c) => c.role !== "run" || c.key === "status");
    const cards = rows.map((row) => {
      const id = points.value("id", row);
      const drop = el("button.step", {
        textContent: "×",
        ariaLabel: `remove point ${id}`,
        onclick: () => this.app.pin(id) || this.compareOrClose(),
      });
      const lines = columns.map((column) => {
        const differs = column.role === "axis" && rows.some((other) => column.values[other] !== column.values[row]);
        return this.line(column, row, differs ? "differs" : "");
      });
      const top = el("div.cardhead", {}, el("b", { textContent: `Point ${id}` }), drop);
      const picture = facts.shape ? this.framed(row, beside) : null;
      return el("div.card", {}, top, picture, el("dl", {}, ...lines.flat()));
    });
    this.fill(head, el("div.cards", {}, ...cards));
  }

  compareOrClose() {
    const { pinned } = this.app.state;
    if (pinned.length) this.compare(pinned);
    else this.box.close();
  }

  fill(...content) {
    this.box.replaceChildren(...content);
    if (!this.box.open) this.box.showModal();
    this.box.focus();
  }

  closer() {
    return el("button.step", { textContent: "×", ariaLabel: "close", onclick: () => this.box.close() });
  }

  links(row, id) {
    const { source, view } = this.app;
    if (!view.facts.shape || !source.picture(id, 0)) return [];
    const link = (href, kind) =>
      el("a.button", { href, download: `point-${id}.${kind}`, textContent: kind.toUpperCase() });
    const options = source.live ? { stretch: view.state.stretch } : {};
    const png = link(source.picture(id, view.points.value("finished", row), options), "png");
    return source.live ? [png, link(source.array(id), "npy")] : [png];
  }

  facts(name, roles, row) {
    const { points } = this.app.view;
    const columns = [...points.columns.values()].filter(
      (c) => roles.includes(c.role) && !["id", "failed", "finished"].includes(c.key) && (c.role !== "part" || c.varies),
    );
    const told = columns.filter((c) => c.key !== "reason" || c.names[c.values[row]]);
    return el(
      "section",
      {},
      el("h3", { textContent: name }),
      el("dl", {}, ...told.flatMap((column) => this.line(column, row))),
    );
  }

  line(column, row, kind = "") {
    const text = column.show(column.values[row], (x) => short(x, 6));
    return [
      el("dt", { textContent: column.label, className: kind }),
      el("dd", { textContent: column.unit ? `${text} ${column.unit}` : text, className: kind }),
    ];
  }

  // the picture with a bar of a round length
  framed(row, options = {}) {
    const { extent, extent_unit: unit } = this.app.view.facts;
    const frame = el("div.frame", {}, this.app.picture(row, 1024, options));
    if (extent && unit) {
      const width = Math.abs(extent[1] - extent[0]);
      const power = 10 ** Math.floor(Math.log10(width / 3));
      const length = [5, 2, 1].map((m) => m * power).find((l) => l <= width / 3);
      const bar = el("span.bar", { textContent: `${length} ${unit}` });
      bar.style.width = `${(100 * length) / width}%`;
      frame.append(bar);
    }
    return frame;
  }

  go(by) {
    const { rows } = this.app.view.selection;
    const at = rows.indexOf(this.row);
    if (at >= 0) this.open(rows[(at + by + rows.length) % rows.length]);
  }

  key(event) {
    const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (by && this.row !== null) {
      event.preventDefault();
      this.go(by);
    }
  }
}
