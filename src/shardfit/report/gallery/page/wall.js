// The pictures of the selected points, best first.

import { byId, el } from "./dom.js";
import { even } from "./numbers.js";
import { LongList } from "./tiles.js";

const GAP = 10;
const CAPTION = 26;
const SIZES = { small: 84, medium: 132, large: 220 };

export class Wall {
  constructor(app) {
    this.app = app;
    this.box = byId("wall");
    this.list = new LongList(this.box, (i) => this.line(i));
  }

  show({ state, selection, facts }) {
    if (state.tab !== "wall") return;
    const wide = this.box.clientWidth - GAP;
    this.across = Math.max(1, Math.floor(wide / (SIZES[state.size] + GAP)));
    this.tile = Math.floor(wide / this.across) - GAP;
    const ratio = facts.shape ? Math.min(2, facts.shape[0] / facts.shape[1]) : 1;
    this.tall = Math.round(this.tile * ratio);
    const look = [this.tile, state.sort, state.stretch, state.pinned].join();
    this.list.show(
      Math.ceil(selection.rows.length / this.across),
      this.tall + CAPTION + GAP,
      (i) => `${look} ${this.rowsOf(i)}`,
    );
  }

  rowsOf(i) {
    return Array.from(this.app.view.selection.rows.subarray(i * this.across, (i + 1) * this.across));
  }

  line(i) {
    return el("div.tiles", {}, ...this.rowsOf(i).map((row, j) => this.tileOf(row, i * this.across + j)));
  }

  tileOf(row, rank) {
    const { points, state } = this.app.view;
    const id = points.value("id", row);
    const column = points.column(state.sort);
    const figure = column.show(column.values[row], even);
    const picture = this.app.picture(row, Math.max(this.tile, this.tall) > 140 ? 256 : 128);
    picture.style.height = `${this.tall}px`;
    const caption = el(
      "span.caption",
      {},
      el("span", { textContent: `${rank + 1}` }),
      el("b", { textContent: figure }),
    );
    const tile = el(
      "button.tile",
      { title: `point ${id}: ${column.label} ${figure}`, onclick: () => this.app.open(row) },
      picture,
      caption,
    );
    tile.style.width = `${this.tile}px`;
    const pinned = state.pinned.includes(id);
    const pin = el("button.pin", {
      textContent: pinned ? "✓" : "+",
      title: "compare",
      ariaPressed: String(pinned),
      onclick: () => this.app.pin(id),
    });
    return el("div.cell", {}, tile, pin);
  }
}
