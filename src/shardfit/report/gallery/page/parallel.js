// Every point as a line over all columns. A stretch drawn on one of the upright axes becomes its range.

import { SHADES, fitted, jitter, legend, shades, shading, theme } from "./canvas.js";
import { byId, el } from "./dom.js";
import { short, whole } from "./numbers.js";

const FRAME = { left: 34, right: 34, top: 34, bottom: 12 };
const MOST = 800; // lines drawn; more are only a blot
const DRAG = 4;

export class Parallel {
  constructor(app) {
    this.app = app;
    this.canvas = byId("parallel");
    this.canvas.onpointerdown = (event) => this.pressed(event);
    this.canvas.onpointermove = (event) => this.moved(event);
    this.canvas.onpointerup = (event) => this.released(event);
  }

  show({ points, state, selection, facts }) {
    const box = (this.box = fitted(this.canvas));
    const able = points.telling.filter((c) => c.role !== "run");
    const chosen = able.filter((c) => state.axes.includes(c.key));
    this.columns = chosen.length > 1 ? chosen : this.usual(able, facts.rank);
    this.menu(able, state);
    if (!selection.rows.length && !points.count) return;
    const step = (box.width - FRAME.left - FRAME.right) / Math.max(1, this.columns.length - 1);
    this.across = this.columns.map((_, i) => FRAME.left + i * step);
    this.lines(points, state, selection, box.context);
    this.axes(state, box, step);
  }

  // axes, and what ranks points: other parts of the objective are a choice
  usual(able, rank) {
    const merits = (c) => c.key === rank || c.key.startsWith("part.data");
    const first = able.filter((c) => c.role === "axis" || merits(c));
    return first.length > 1 ? first : able;
  }

  menu(able, state) {
    const key = JSON.stringify([able.map((c) => c.key), this.columns.map((c) => c.key)]);
    if (key === this.built) return;
    this.built = key;
    const shown = new Set(this.columns.map((c) => c.key));
    const toggle = (column) => {
      const keys = able.map((c) => c.key).filter((k) => (k === column.key ? !shown.has(k) : shown.has(k)));
      this.app.change({ axes: keys });
    };
    const boxes = able.map((column) => {
      const box = el("input", { type: "checkbox", checked: shown.has(column.key), onchange: () => toggle(column) });
      return el("label", {}, box, column.title);
    });
    const all = el("button", { textContent: "Usual ones", onclick: () => this.app.change({ axes: [] }) });
    all.disabled = !state.axes.length;
    byId("axes-menu").replaceChildren(...boxes, all);
  }

  height(place) {
    return FRAME.top + (1 - place) * (this.box.height - FRAME.top - FRAME.bottom);
  }

  // best ones last, on top; of many every n-th
  lines(points, state, selection, context) {
    const every = Math.ceil(selection.rows.length / MOST);
    const rows = selection.rows.filter((_, i) => i % every === 0);
    byId("parallel-note").textContent =
      every > 1 ? `${whole(rows.length)} of ${whole(selection.rows.length)} lines drawn` : "";
    const [tone, ramp] = [shading(points.column(state.colour), selection.rows), shades(rows.length > 300 ? 0.28 : 0.6)];
    const heaps = Array.from({ length: SHADES }, () => []);
    for (const row of rows.reverse()) heaps[tone(row)].push(row);
    context.lineWidth = 1;
    for (let i = 0; i < SHADES; i++) {
      const tint = state.descending ? i : SHADES - 1 - i;
      context.strokeStyle = ramp[tint];
      context.beginPath();
      for (const row of heaps[tint]) this.line(row, context);
      context.stroke();
    }
    legend(byId("legend"), points.column(state.colour), tone);
  }

  line(row, context) {
    this.columns.forEach((column, i) => {
      const { levels } = column.scale;
      const place = column.places[row] + (levels ? (0.5 / levels.length) * jitter(row, i) : 0);
      if (i && place === place) context.lineTo(this.across[i], this.height(place));
      else if (place === place) context.moveTo(this.across[i], this.height(place));
    });
  }

  axes(state, { context }, step) {
    const { ink, soft, line, accent, sheet } = theme();
    this.columns.forEach((column, i) => {
      const x = this.across[i];
      const range = state.ranges[column.key];
      context.font = `${range ? "600 " : ""}11.5px system-ui, sans-serif`;
      context.fillStyle = range ? accent : ink;
      context.textAlign = "center";
      context.fillText(column.label, x, i % 2 && step < 84 ? 12 : 24, Math.max(40, (step < 84 ? 2 : 1) * step - 8));
      context.fillStyle = line;
      context.fillRect(x - 0.5, this.height(1), 1, this.height(0) - this.height(1));
      if (range || this.drag?.axis === i) this.stretch(column, range, x, context, accent);
      context.font = "10.5px system-ui, sans-serif";
      context.textAlign = "left";
      for (const { value, place } of column.scale.ticks(5)) {
        const text = column.show(value, (v) => short(v, 3)).slice(0, 8);
        context.lineWidth = 3;
        context.strokeStyle = sheet;
        context.strokeText(text, x + 4, this.height(place) + 3.5);
        context.fillStyle = soft;
        context.fillText(text, x + 4, this.height(place) + 3.5);
      }
    });
  }

  stretch(column, range, x, context, colour) {
    let [from, to] = column.scale.ends(range);
    if (this.drag?.to !== undefined && this.columns[this.drag.axis] === column)
      [from, to] = [this.drag.from, this.drag.to];
    context.globalAlpha = 0.35;
    context.fillStyle = colour;
    context.fillRect(x - 6, this.height(to), 12, this.height(from) - this.height(to));
    context.globalAlpha = 1;
  }

  spot(event) {
    const axis = this.across.reduce(
      (best, x, i) => (Math.abs(x - event.offsetX) < Math.abs(this.across[best] - event.offsetX) ? i : best),
      0,
    );
    const place = 1 - (event.offsetY - FRAME.top) / (this.box.height - FRAME.top - FRAME.bottom);
    return { axis, place: Math.min(1, Math.max(0, place)) };
  }

  pressed(event) {
    if (!this.columns?.length) return;
    this.canvas.setPointerCapture(event.pointerId);
    const { axis, place } = this.spot(event);
    this.drag = { axis, from: place, start: event.offsetY };
  }

  moved(event) {
    if (!this.drag || Math.abs(event.offsetY - this.drag.start) < DRAG) return;
    this.drag.to = this.spot(event).place;
    this.show(this.app.view);
  }

  released() {
    const { drag } = this;
    this.drag = null;
    if (!drag) return;
    const column = this.columns[drag.axis];
    this.app.narrow({ [column.key]: drag.to === undefined ? null : column.scale.between(drag.from, drag.to) });
  }
}
