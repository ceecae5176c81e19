// All points of the survey as columns of numbers, and which of them are selected, in which order.
// A column of texts holds the places of its texts in `names`.

import { Scale } from "./scale.js";

const FEW = 16; // different numbers that are shown as levels
const ARRAYS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array, f8: Float64Array };

function unpacked(column) {
  const text = atob(column.data);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new ARRAYS[column.type](bytes.buffer);
}

class Column {
  constructor(about) {
    Object.assign(this, about); // key, label, unit, kind, role
    this.names = [];
    this.codes = new Map();
    this.values = new Float64Array(1024).fill(NaN);
    [this.low, this.high] = [Infinity, -Infinity];
    this.seen = new Set();
    this.scaled = this.placed = null;
  }

  get title() {
    return this.unit ? `${this.label} (${this.unit})` : this.label;
  }

  // what a packed column says, as numbers of this column
  numbers(column) {
    const found = unpacked(column);
    if (!column.levels) return found;
    const levels = column.levels.map((level) => (this.kind === "text" ? this.code(level) : (level ?? NaN)));
    return Float64Array.from(found, (code) => levels[code]);
  }

  code(text) {
    if (!this.codes.has(text)) {
      this.codes.set(text, this.names.length);
      this.names.push(text);
    }
    return this.codes.get(text);
  }

  set(row, value) {
    if (row >= this.values.length) {
      const longer = new Float64Array(2 * row).fill(NaN);
      longer.set(this.values);
      this.values = longer;
    }
    this.values[row] = value;
    this.placed = null;
    if (Number.isNaN(value)) return;
    if (value < this.low) this.low = value;
    if (value > this.high) this.high = value;
    if (this.seen.size <= FEW) this.seen.add(value);
    this.scaled = this.placed = null;
  }

  // where all rows stand on the scale, kept until a value is set
  get places() {
    const { scale } = this;
    this.placed ??= Float32Array.from(this.values, (value) => scale.place(value));
    return this.placed;
  }

  get scale() {
    if (!this.scaled) {
      const choices = this.kind === "text" || (this.seen.size <= FEW && ["axis", "run"].includes(this.role));
      const few = this.seen.size && choices;
      const levels = few ? [...this.seen].sort((a, b) => a - b) : null;
      this.scaled = new Scale({
        low: this.low,
        high: this.high,
        levels,
        names: this.kind === "text" ? this.names : null,
      });
    }
    return this.scaled;
  }

  // a column worth a filter or an axis of a plot
  get varies() {
    return this.seen.size > 1 && !(this.kind === "text" && this.seen.size > FEW);
  }

  show(value, write) {
    if (this.key === "status") return (this.names[value] ?? "").toLowerCase().replaceAll("_", " ");
    if (this.kind === "text") return this.names[value] ?? "";
    return write(value);
  }
}

export class Points {
  constructor(facts) {
    this.columns = new Map(facts.columns.map((about) => [about.key, new Column(about)]));
    this.rowOf = new Map();
    this.tags = {}; // name → numbers of points
    this.notes = {}; // number of a point → text
    this.count = 0;
    this.sorted = null;
  }

  column(key) {
    return this.columns.get(key);
  }

  mark({ tags, notes }) {
    this.tags = Object.fromEntries(Object.entries(tags).map(([name, ids]) => [name, new Set(ids)]));
    this.notes = notes;
  }

  value(key, row) {
    return this.columns.get(key).values[row];
  }

  of(role) {
    return [...this.columns.values()].filter((column) => column.role === role);
  }

  // columns of numbers or few texts, in the order in which people look at them
  get telling() {
    const run = this.of("run").filter((c) => !["id", "failed", "finished", "reason"].includes(c.key));
    return [...this.of("value"), ...this.of("part"), ...this.of("axis"), ...run].filter((c) => c.varies);
  }

  // take over what is new in a page: points not known yet, or finished anew; return how many
  append(page) {
    const [ids, finished] = ["id", "finished"].map((key) => this.columns.get(key).numbers(page.columns[key]));
    const fresh = Array.from(ids.keys()).filter((i) => this.value("finished", this.rowOf.get(ids[i])) !== finished[i]);
    if (!fresh.length) return 0;
    const rows = fresh.map((i) => {
      if (!this.rowOf.has(ids[i])) this.rowOf.set(ids[i], this.count++);
      return this.rowOf.get(ids[i]);
    });
    for (const column of this.columns.values()) {
      const numbers = column.numbers(page.columns[column.key]);
      fresh.forEach((i, place) => column.set(rows[place], numbers[i]));
    }
    this.sorted = null;
    return fresh.length;
  }

  // all rows in the order of a column; rows without a value last, equal ones by number
  order(key, descending) {
    const known = this.sorted;
    if (known && known.key === key && known.descending === descending) return known.rows;
    const { values } = this.columns.get(key);
    const ids = this.columns.get("id").values;
    const sign = descending ? -1 : 1;
    const rows = Uint32Array.from({ length: this.count }, (_, i) => i).sort((a, b) => {
      const [x, y] = [values[a], values[b]];
      if (x < y) return -sign;
      if (x > y) return sign;
      if (x !== x) return y !== y ? ids[a] - ids[b] : 1;
      return y !== y ? -1 : ids[a] - ids[b];
    });
    this.sorted = { key, descending, rows };
    return rows;
  }

  // rows: selected ones in order; passing: 1 for each of them; total: before the limit; failures: within the ranges
  select({ ranges, sort, descending, limit, tag }) {
    const inside = new Uint8Array(this.count).fill(1);
    const ids = this.columns.get("id").values;
    if (tag) for (let row = 0; row < this.count; row++) if (!this.tags[tag].has(ids[row])) inside[row] = 0;
    for (const [key, [low, high]] of Object.entries(ranges)) {
      const { values } = this.columns.get(key);
      const [from, to] = [low ?? -Infinity, high ?? Infinity];
      for (let row = 0; row < this.count; row++) if (!(values[row] >= from && values[row] <= to)) inside[row] = 0;
    }
    const failed = this.columns.get("failed").values;
    const order = this.order(sort, descending);
    const found = order.filter((row) => inside[row] && !failed[row]);
    const rows = limit === null ? found : found.slice(0, limit);
    const passing = new Uint8Array(this.count);
    for (const row of rows) passing[row] = 1;
    const failures = order.filter((row) => failed[row] && this.onAxes(row, ranges));
    return { rows, passing, total: found.length, failures };
  }

  // a failed point has no values: only its axes count
  onAxes(row, ranges) {
    return Object.entries(ranges).every(([key, [low, high]]) => {
      const column = this.columns.get(key);
      const value = column.values[row];
      return column.role !== "axis" || (value >= (low ?? -Infinity) && value <= (high ?? Infinity));
    });
  }

  // the failed points among ranges of axes, in the words of the server
  askedFailed({ ranges }) {
    const onAxes = Object.fromEntries(Object.entries(ranges).filter(([key]) => this.columns.get(key).role === "axis"));
    return { ...this.asked({ ranges: onAxes, sort: "id", descending: false, limit: null, tag: "" }), failed: true };
  }

  // rows as text of a CSV file; what a spreadsheet would take for a formula is marked as text
  csv(rows) {
    const columns = [...this.columns.values()];
    const quote = (text) => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
    const cell = ({ kind, names, values }, row) => {
      if (kind === "text") return quote(names[values[row]] ?? "");
      return Number.isNaN(values[row]) ? "" : String(values[row]);
    };
    const lines = Array.from(rows, (row) => columns.map((column) => cell(column, row)).join());
    return `${[columns.map((column) => quote(column.key)).join(), ...lines].join("\r\n")}\r\n`;
  }

  // the same selection in the words of the server
  asked({ ranges, sort, descending, limit, tag }) {
    const asked = { ranges: {}, choices: {}, sort, descending, limit, tag };
    for (const [key, [low, high]] of Object.entries(ranges)) {
      const column = this.columns.get(key);
      if (column.kind === "text") {
        asked.choices[key] = column.names.filter((_, code) => code >= (low ?? 0) && code <= (high ?? Infinity));
      } else asked.ranges[key] = [low, high];
    }
    return asked;
  }
}
