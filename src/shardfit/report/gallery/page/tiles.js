// A long list of rows of one height, of which only those in sight exist.

import { el } from "./dom.js";

const MARGIN = 3; // rows kept above and below

export class LongList {
  constructor(scroller, makeRow) {
    this.scroller = scroller;
    this.makeRow = makeRow;
    this.space = el("div.space");
    this.made = new Map();
    scroller.append(this.space);
    scroller.addEventListener("scroll", () => this.fill(), { passive: true });
  }

  // keyOf(i): what row i shows; a row that shows the same stays, so that a click meets what was pressed
  show(count, height, keyOf) {
    const moved = height !== this.height;
    Object.assign(this, { count, height, keyOf });
    this.space.style.height = `${count * height}px`;
    this.drop((i, key) => moved || i >= count || keyOf(i) !== key);
    this.fill();
  }

  drop(isOld) {
    for (const [i, { row, key }] of this.made) {
      if (!isOld(i, key)) continue;
      row.remove();
      this.made.delete(i);
    }
  }

  fill() {
    if (!this.scroller.clientHeight || !this.count) return;
    const top = this.scroller.scrollTop - this.space.offsetTop;
    const first = Math.max(0, Math.floor(top / this.height) - MARGIN);
    const last = Math.min(this.count - 1, Math.ceil((top + this.scroller.clientHeight) / this.height) + MARGIN);
    this.drop((i) => i < first || i > last);
    for (let i = first; i <= last; i++) {
      if (this.made.has(i)) continue;
      const row = this.makeRow(i);
      row.style.transform = `translateY(${i * this.height}px)`;
      this.made.set(i, { row, key: this.keyOf(i) });
      this.space.append(row);
    }
  }
}
