// Points in the plane of two columns, coloured by a third. A drawn rectangle becomes the ranges of both columns.

import { Dots, fitted, jitter, packed, packedShades, shading, theme } from "./canvas.js";
import { byId, picker } from "./dom.js";
import { short } from "./numbers.js";

const FRAME = { left: 54, right: 12, top: 8, bottom: 38 };
const REACH = 10; // pixels from the pointer to a point that is meant
const DRAG = 5; // pixels that make a drag of a click

export class Scatter {
  constructor(app) {
    this.app = app;
    this.canvas = byId("scatter");
    this.canvas.onpointerdown = (event) => this.pressed(event);
    this.canvas.onpointermove = (event) => this.moved(event);
    this.canvas.onpointerup = (event) => this.released(event);
    this.canvas.onpointerleave = () => app.hint(null);
    this.canvas.ondblclick = () => app.narrow({ [app.state.x]: null, [app.state.y]: null });
  }

  show({ points, state, selection }) {
    this.pickers(points, state);
    const box = (this.box = fitted(this.canvas));
    const [x, y, colour] = [state.x, state.y, state.colour].map((key) => points.column(key));
    if (!points.count) return;
    this.places = this.located(points, x, y, box);
    this.axes(box, x, y);
    this.cloud(points, selection, colour, box);
    this.crosses(selection.failures, box.context);
    this.frame(state, x, y, box);
  }

  pickers(points, state) {
    const columns = points.telling.map((c) => [c.key, c.title]);
    const key = JSON.stringify([columns, state.x, state.y, state.colour]);
    if (key === this.built) return;
    this.built = key;
    const pick = (label, name) => picker(label, columns, state[name], (value) => this.app.change({ [name]: value }));
    byId("scatter-pickers").replaceChildren(pick("x", "x"), pick("y", "y"));
    byId("colour-picker").replaceChildren(pick("colour", "colour"));
  }

  // pixel places of all rows
  located(points, x, y, { width, height }) {
    const places = new Float32Array(2 * points.count);
    [
      [x, FRAME.left, width - FRAME.left - FRAME.right],
      [y, height - FRAME.bottom, FRAME.top + FRAME.bottom - height],
    ].forEach(([column, start, length], side) => {
      const { scale, places: on } = column;
      const spread = scale.levels ? 0.7 / scale.levels.length : 0;
      for (let row = 0; row < points.count; row++) {
        places[2 * row + side] = start + length * (on[row] + (spread && spread * jitter(row, side)));
      }
    });
    return places;
  }

  // those that are not selected, then the selected ones, the best on top
  cloud(points, { rows, passing }, colour, box) {
    const { places } = this;
    const dots = new Dots(box);
    const [failed, faint] = [points.column("failed").values, packed(theme().faint)];
    const small = points.count > 5000 ? 1 : 2.5;
    const dot = (row, size, tint) => dots.dot(places[2 * row], places[2 * row + 1], size, tint);
    for (let row = 0; row < points.count; row++) if (!passing[row] && !failed[row]) dot(row, small, faint);
    const [tone, ramp, size] = [shading(colour, rows), packedShades(), rows.length > 5000 ? 2 : 4];
    for (let i = rows.length - 1; i >= 0; i--) dot(rows[i], size, ramp[tone(rows[i])]);
    dots.drawOn(box.context);
  }

  crosses(rows, context) {
    const { places } = this;
    context.strokeStyle = theme().bad;
    context.beginPath();
    for (const row of rows) {
      const [px, py] = [places[2 * row], places[2 * row + 1]];
      context.moveTo(px - 2.5, py - 2.5);
      context.lineTo(px + 2.5, py + 2.5);
      context.moveTo(px - 2.5, py + 2.5);
      context.lineTo(px + 2.5, py - 2.5);
    }
    context.stroke();
  }

  axes({ context, width, height }, x, y) {
    const { ink, soft, line } = theme();
    context.font = "11.5px system-ui, sans-serif";
    context.strokeStyle = line;
    context.fillStyle = soft;
    const [w, h] = [width - FRAME.left - FRAME.right, height - FRAME.top - FRAME.bottom];
    const label = (column, value) => column.show(value, (v) => short(v, 3)).slice(0, 10);
    context.beginPath();
    context.textAlign = "center";
    for (const { value, place } of x.scale.ticks(Math.max(2, Math.floor(w / 70)))) {
      const at = FRAME.left + place * w;
      context.moveTo(at, FRAME.top);
      context.lineTo(at, FRAME.top + h);
      context.fillText(label(x, value), at, FRAME.top + h + 14);
    }
    context.textAlign = "right";
    for (const { value, place } of y.scale.ticks(Math.max(2, Math.floor(h / 40)))) {
      const at = FRAME.top + (1 - place) * h;
      context.moveTo(FRAME.left, at);
      context.lineTo(FRAME.left + w, at);
      context.fillText(label(y, value), FRAME.left - 7, at + 4);
    }
    context.stroke();
    context.fillStyle = ink;
    context.textAlign = "center";
    context.fillText(x.title, FRAME.left + w / 2, height - 7, w);
    context.save();
    context.translate(11, FRAME.top + h / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(y.title, 0, 0, h);
    context.restore();
  }

  // the rectangle being drawn, or the ranges of both columns
  frame(state, x, y, { context, width, height }) {
    const [w, h] = [width - FRAME.left - FRAME.right, height - FRAME.top - FRAME.bottom];
    context.strokeStyle = theme().accent;
    context.lineWidth = 1.5;
    if (this.drag?.to) {
      const { from, to } = this.drag;
      context.strokeRect(from[0], from[1], to[0] - from[0], to[1] - from[1]);
    } else if (state.ranges[state.x] || state.ranges[state.y]) {
      const [[a, b], [c, d]] = [x, y].map((column) => column.scale.ends(state.ranges[column.key]));
      context.strokeRect(FRAME.left + a * w, FRAME.top + (1 - d) * h, (b - a) * w, (d - c) * h);
    }
  }

  near(event) {
    if (!this.places) return -1;
    const { passing } = this.app.view.selection;
    let [best, row] = [REACH ** 2, -1];
    for (let i = 0; i < passing.length; i++) {
      const distance = (this.places[2 * i] - event.offsetX) ** 2 + (this.places[2 * i + 1] - event.offsetY) ** 2;
      if (distance < best && passing[i]) [best, row] = [distance, i];
    }
    return row;
  }

  pressed(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.drag = { from: [event.offsetX, event.offsetY], to: null };
  }

  moved(event) {
    if (!this.drag) return this.app.hint(this.near(event), event);
    const { from } = this.drag;
    if (Math.hypot(event.offsetX - from[0], event.offsetY - from[1]) > DRAG)
      this.drag.to = [event.offsetX, event.offsetY];
    return this.show(this.app.view);
  }

  released(event) {
    const { drag } = this;
    this.drag = null;
    if (!drag) return;
    if (!drag.to) {
      const row = this.near(event);
      if (row >= 0) this.app.open(row);
      return;
    }
    const { points, state } = this.app.view;
    const { width, height } = this.box;
    const across = [drag.from[0], drag.to[0]].map((px) => (px - FRAME.left) / (width - FRAME.left - FRAME.right));
    const up = [drag.from[1], drag.to[1]].map((py) => 1 - (py - FRAME.top) / (height - FRAME.top - FRAME.bottom));
    this.app.narrow({
      [state.x]: points.column(state.x).scale.between(...across),
      [state.y]: points.column(state.y).scale.between(...up),
    });
  }
}
