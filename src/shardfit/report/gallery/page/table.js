// Points as a table; a click on a heading sorts by it.

import { el } from "./dom.js";
import { even } from "./numbers.js";
import { LongList } from "./tiles.js";

const HEIGHT = 34;
const PICTURE = 48;
const EDGE = 12; // pixels on both sides of a row
const LETTER = 7.4;

export class Table {
  // tab: where it is; columnsOf(points): which to show; rowsOf(selection): which points
  constructor(app, tab, box, columnsOf, rowsOf) {
    Object.assign(this, { app, tab, box, columnsOf, rowsOf });
    this.head = el("div.row.heading", { role: "row" });
    box.append(this.head);
    this.list = new LongList(box, (i) => this.row(i));
  }

  show({ points, state, selection, facts }) {
    this.pictures = Boolean(facts.shape);
    if (state.tab !== this.tab) return;
    this.columns = this.columnsOf(points);
    this.rows = this.rowsOf(selection);
    const widths = this.widths();
    this.box.style.setProperty("--columns", widths);
    this.head.replaceChildren(el("span"), ...this.columns.map((column) => this.heading(column, state)));
    this.list.show(this.rows.length, HEIGHT, (i) => `${this.rows[i]} ${state.stretch} ${widths}`);
  }

  // the same pixels for every row, the window filled
  widths() {
    const wanted = this.columns.map((column) => {
      const longest = column.kind === "text" ? Math.max(...column.names.slice(0, 50).map((name) => name.length), 0) : 8;
      return Math.min(420, 18 + LETTER * Math.max(longest, column.label.length + 2));
    });
    const picture = this.pictures ? PICTURE : 0;
    const spare = this.box.clientWidth - 2 * EDGE - picture - wanted.reduce((a, b) => a + b, 0);
    return [picture, ...wanted.map((w) => Math.floor(w + Math.max(0, spare) / wanted.length))]
      .map((w) => `${w}px`)
      .join(" ");
  }

  heading(column, { sort, descending }) {
    const chosen = column.key === sort;
    const mark = chosen ? (descending ? " ↓" : " ↑") : "";
    const button = el("button", { textContent: column.label + mark, title: `sort by ${column.title}` });
    button.onclick = () => this.app.change({ sort: column.key, descending: chosen && !descending });
    const order = chosen ? (descending ? "descending" : "ascending") : "none";
    return el(column.kind === "text" ? "span.text" : "span", { role: "columnheader", "aria-sort": order }, button);
  }

  row(i) {
    const row = this.rows[i];
    const cells = this.columns.map((column) => {
      const text = column.show(column.values[row], column.scale.levels || column.key === "id" ? String : even);
      return el(column.kind === "text" ? "span.text" : "span", {
        textContent: text,
        title: column.kind === "text" ? text : "",
      });
    });
    const picture = this.pictures ? this.app.picture(row, 64) : el("span");
    return el("button.row", { onclick: () => this.app.open(row), role: "row" }, picture, ...cells);
  }
}
