// The column on the left: for every axis and figure of merit a histogram (all points and selected ones) over a slider
// with two handles.

import { byId, el } from "./dom.js";
import { fitted, theme } from "./canvas.js";
import { short } from "./numbers.js";

const BINS = 40;
const HANDLE = 14; // pixels, as in the style sheet
const GROUPS = [
  ["axis", "Axes"],
  ["merit", "Figures of merit"],
  ["run", "Runs"],
];

export class Filters {
  constructor(app) {
    this.app = app;
    this.rows = new Map();
    byId("reset").onclick = () => app.change({ ranges: {}, limit: null });
  }

  show({ points, state, selection }) {
    const columns = points.telling;
    const key = columns.map((c) => `${c.key} ${c.scale.levels?.length ?? ""}`).join();
    if (key !== this.built) this.build(columns, key);
    byId("reset").disabled = !Object.keys(state.ranges).length && state.limit === null;
    const width = byId("filters").clientWidth; // read once, before anything is changed
    for (const row of this.rows.values()) row.show(state.ranges[row.column.key]);
    for (const row of this.rows.values()) if (row.element.parentElement.open) row.draw(points, selection.rows, width);
  }

  build(columns, key) {
    this.built = key;
    this.rows.clear();
    const box = byId("filters");
    box.replaceChildren();
    for (const [role, title] of GROUPS) {
      const inside = columns.filter((c) => (role === "merit" ? ["value", "part"].includes(c.role) : c.role === role));
      if (!inside.length) continue;
      const group = el("details.group", { open: role !== "run" }, el("summary", { textContent: title }));
      group.ontoggle = () => this.app.refresh();
      for (const column of inside) {
        const row = new FilterRow(column, (range) => this.app.narrow({ [column.key]: range }));
        this.rows.set(column.key, row);
        group.append(row.element);
      }
      box.append(group);
    }
  }
}

class FilterRow {
  constructor(column, onRange) {
    this.column = column;
    this.onRange = onRange;
    this.canvas = el("canvas");
    this.bins = column.scale.levels?.length ?? BINS;
    this.last = column.scale.levels ? this.bins - 1 : 100;
    const handle = (name) =>
      el("input", {
        type: "range",
        min: 0,
        max: this.last,
        step: 1,
        ariaLabel: `${name} ${column.title}`,
        oninput: () => this.moved(),
      });
    [this.from, this.to] = [handle("lowest"), handle("highest")];
    const field = (name, side) =>
      el("input", {
        type: "text",
        inputMode: "decimal",
        ariaLabel: `${name} ${column.title}, typed`,
        onchange: (event) => this.typed(side, event.target.value),
      });
    this.typing = column.scale.levels ? null : [field("lowest", 0), field("highest", 1)];
    this.text = this.typing ? el("span.bounds.typed", {}, this.typing[0], "–", this.typing[1]) : el("span.bounds");
    this.slider = el("div.slider", {}, el("i"), this.from, this.to);
    const head = el("div.head", {}, el("span.name", { textContent: column.title, title: column.title }), this.text);
    this.element = el("div.filter", {}, head, this.canvas, this.slider);
  }

  // a bound as written; nothing, or what is no number, is an open end
  typed(side, text) {
    const number = text.trim() === "" ? NaN : Number(text.replace(",", "."));
    const range = [...(this.range ?? [null, null])];
    range[side] = Number.isFinite(number) ? number : null;
    this.onRange(range.some((bound) => bound !== null) ? range : null);
  }

  moved() {
    let [a, b] = [Number(this.from.value), Number(this.to.value)];
    if (a > b) [a, b] = [b, a];
    if (a === 0 && b === this.last) return this.onRange(null);
    const { levels } = this.column.scale;
    this.onRange(levels ? [levels[a], levels[b]] : this.column.scale.between(a / this.last, b / this.last));
  }

  show(range) {
    const { column } = this;
    const { scale } = column;
    const steps = (value, open) => {
      if (value === null || value === undefined) return open;
      return scale.levels ? scale.levels.indexOf(value) : Math.round(scale.place(value) * this.last);
    };
    this.from.value = steps(range?.[0], 0);
    this.to.value = steps(range?.[1], this.last);
    this.element.classList.toggle("active", Boolean(range));
    this.range = range;
    const written = (value, open) => column.show(value ?? open, (x) => short(x, 3));
    const [low, high] = [written(range?.[0], column.low), written(range?.[1], column.high)];
    if (!this.typing) this.text.textContent = low === high ? low : `${low} – ${high}`;
    else
      [low, high].forEach((text, side) => {
        if (document.activeElement !== this.typing[side]) this.typing[side].value = text;
      });
  }

  // bin of every row, and how many good points each bin has; kept as long as the column stays as it is
  binned(points) {
    const { places } = this.column;
    if (this.places === places) return;
    this.places = places;
    const failed = points.column("failed").values;
    this.bin = Uint8Array.from(places, (place) =>
      place === place ? Math.min(this.bins - 1, Math.floor(place * this.bins)) : this.bins,
    );
    this.all = new Uint32Array(this.bins + 1);
    for (let row = 0; row < points.count; row++) if (!failed[row]) this.all[this.bin[row]]++;
  }

  draw(points, rows, wide) {
    this.binned(points);
    const { scale } = this.column;
    const { bin, all } = this;
    const chosen = new Uint32Array(this.bins + 1); // the last is for points without a value
    for (let i = 0; i < rows.length; i++) chosen[bin[rows[i]]]++;
    const { context, width, height } = fitted(this.canvas, { width: wide, height: 26 });
    const [step, gap] = [width / this.bins, this.bins > 20 ? 1 : 3];
    // each has its own height: a small selection still shows its shape
    for (const [bins, colour] of [
      [all, theme().faint],
      [chosen, theme().accent],
    ]) {
      const counts = bins.subarray(0, this.bins);
      const most = Math.max(1, ...counts);
      context.fillStyle = colour;
      counts.forEach(
        (n, i) => n && context.fillRect(i * step + gap / 2, height, step - gap, -Math.max(1, (height * n) / most)),
      );
    }
    const inset = scale.levels ? width / this.bins / 2 - HANDLE / 2 : -HANDLE / 2;
    this.slider.style.marginInline = `${inset}px`;
    const track = this.slider.firstChild;
    track.style.left = `calc(${HANDLE / 2}px + ${this.from.value / this.last} * (100% - ${HANDLE}px))`;
    track.style.right = `calc(${HANDLE / 2}px + ${1 - this.to.value / this.last} * (100% - ${HANDLE}px))`;
  }
}
