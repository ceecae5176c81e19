// The page as a whole: one state (ranges, order, what is shown), one selection made from it, and views that draw it.

import { forgetTheme } from "./canvas.js";
import { CloseUp } from "./closeup.js";
import { byId, el, settled } from "./dom.js";
import { Failures } from "./failures.js";
import { Filters } from "./filters.js";
import { Header } from "./header.js";
import { short, whole } from "./numbers.js";
import { Parallel } from "./parallel.js";
import { Points } from "./points.js";
import { Scatter } from "./scatter.js";
import { openSource } from "./source.js";
import { Stack } from "./stack.js";
import { MOST_PINNED, firstState, remember, settle } from "./state.js";
import { Table } from "./table.js";
import { Toolbar } from "./toolbar.js";
import { Wall } from "./wall.js";

const FIRST = 2000; // points of the first page, so that something is there at once
const PAGE = 25000;
const START = [-1, -1]; // before the first point: time, number
const OFTEN = 1500; // milliseconds between looks at a running survey
const SELDOM = 6000;
const LATE = 30; // seconds that a point from another worker may come after later ones
const NONE_INSIDE = "No point lies within all ranges. Widen one, or start over with Reset.";
const NONE_YET = "No point is finished yet. Points appear here as the survey runs.";

class App {
  constructor(source, { facts, progress }, page) {
    Object.assign(this, { source, facts, progress });
    this.points = new Points(facts);
    this.take(page);
    this.state = firstState(this.points, facts);
    this.header = new Header(facts);
    this.closeUp = new CloseUp(this);
    const columns = (points) => {
      const some = (...keys) => keys.map((key) => points.column(key));
      return [
        ...some("id", "status", "value"),
        ...(facts.rank === "value" ? [] : some(facts.rank)),
        ...points.of("part").filter((column) => column.varies),
        ...points.of("axis"),
        ...some("steps", "seconds"),
      ];
    };
    const table = new Table(this, "table", byId("table"), columns, (selection) => selection.rows);
    const drawings = [Toolbar, Filters, Scatter, Parallel, Wall, Failures, Stack].map((Drawing) => new Drawing(this));
    this.views = [this.header, table, ...drawings];
    this.rememberSoon = settled(300, () => remember(this.state));
    document.body.classList.toggle("plain", !facts.shape);
    for (const tab of document.querySelectorAll("[role=tab]"))
      tab.onclick = () => this.change({ tab: tab.dataset.tab });
    byId("compare").onclick = () => this.closeUp.compare(this.state.pinned);
    window.addEventListener("resize", () => this.refresh());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => forgetTheme() || this.refresh());
  }

  change(part) {
    Object.assign(this.state, part);
    this.refresh();
    this.rememberSoon();
  }

  // key → range, or null for none
  narrow(ranges) {
    const joined = { ...this.state.ranges, ...ranges };
    const closed = Object.entries(joined).filter(([, range]) => range?.some((bound) => bound !== null));
    this.change({ ranges: Object.fromEntries(closed) });
  }

  pin(id) {
    const { pinned } = this.state;
    this.change({ pinned: pinned.includes(id) ? pinned.filter((p) => p !== id) : [...pinned, id].slice(-MOST_PINNED) });
  }

  open(row) {
    this.hint(null);
    this.closeUp.open(row);
  }

  refresh() {
    this.asked ??= requestAnimationFrame(() => {
      this.asked = null;
      this.draw();
    });
  }

  draw() {
    const { points, state, facts, progress } = this;
    settle(state, points, facts);
    const started = performance.now();
    if (!(state.tag in points.tags)) state.tag = "";
    const selection = points.select(state);
    this.view = { points, state, facts, progress, selection };
    document.body.dataset.tab = state.tab;
    document.body.classList.toggle("empty", !selection.rows.length);
    for (const tab of document.querySelectorAll("[role=tab]"))
      tab.setAttribute("aria-selected", String(tab.dataset.tab === state.tab));
    byId("failures-count").textContent = whole(selection.failures.length);
    byId("compare").textContent = `Compare ${state.pinned.length}`;
    byId("compare").hidden = !state.pinned.length;
    byId("nothing").textContent = points.count ? NONE_INSIDE : NONE_YET;
    for (const view of this.views) view.show(this.view);
    // a link to the page of a point, which may come with a later load
    if (state.open !== null && !this.closeUp.box.open && points.rowOf.has(state.open))
      this.closeUp.open(points.rowOf.get(state.open));
    document.body.dataset.drawn = `${points.count} ${selection.rows.length}`;
    document.body.dataset.milliseconds = String(performance.now() - started);
  }

  // the picture of a row, or an empty frame where there is none
  picture(row, most, options = {}) {
    const { points, state, source, facts } = this;
    const { live } = source;
    const id = points.value("id", row);
    const address = facts.shape
      ? source.picture(id, points.value("finished", row), live ? { most, stretch: state.stretch, ...options } : {})
      : null;
    if (!address) return el("span.picture.none", { title: live ? "" : "this picture is not in the file" });
    const picture = el("img.picture", { alt: `point ${id}`, decoding: "async", src: address });
    picture.style.aspectRatio = `${facts.shape[1]} / ${facts.shape[0]}`;
    picture.onerror = () => picture.classList.add("none");
    return picture;
  }

  // a small card beside the pointer; row -1 or null: none
  hint(row, event) {
    const box = byId("hint");
    box.hidden = row === null || row < 0;
    if (box.hidden) return;
    const { points, state } = this;
    if (box.dataset.row !== String(row)) {
      box.dataset.row = String(row);
      const lines = [...new Set([state.x, state.y, state.colour])].map((key) => {
        const column = points.column(key);
        return el(
          "div",
          {},
          el("span", { textContent: column.label }),
          el("b", { textContent: column.show(column.values[row], short) }),
        );
      });
      box.replaceChildren(this.picture(row, 128), ...lines);
    }
    const left = event.clientX + 180 > innerWidth ? event.clientX - 172 : event.clientX + 14;
    box.style.transform = `translate(${left}px, ${Math.min(event.clientY + 14, innerHeight - 230)}px)`;
  }

  // fetch what was finished since; true if there may be more
  async load(most) {
    const page = await this.source.page(this.last, most);
    if (this.take(page)) this.refresh();
    return page.count === most;
  }

  take(page) {
    this.last = page.last ?? this.last ?? START;
    return this.points.append(page);
  }

  async loadAll() {
    while (await this.load(PAGE));
  }

  // tags and notes: what the ledger has, or what it answers after a change
  mark(found) {
    this.writable = found.writable;
    this.points.mark(found);
    this.refresh();
  }

  async look() {
    try {
      const { facts, progress } = await this.source.survey();
      this.mark(await this.source.marks());
      const kinds = (all) => JSON.stringify(all.columns);
      // the first points have told that an axis is of texts
      if (kinds(facts) !== kinds(this.facts)) return location.reload();
      this.progress = progress;
      this.last = [this.last[0] - LATE, -1];
      await this.loadAll();
      if (this.points.count < progress.done) {
        this.last = START;
        await this.loadAll();
      }
      this.header.show({ ...this.view, progress });
    } catch (error) {
      this.header.trouble(error instanceof TypeError ? "no connection, trying again" : error.message);
    }
    const expected = ["running", "waiting"].includes(this.progress.state) && !document.hidden;
    return setTimeout(() => this.look(), expected ? OFTEN : SELDOM);
  }
}

async function start() {
  const address = new URL(location.href);
  if (address.searchParams.has("token")) {
    address.searchParams.delete("token"); // a cookie has it now: keep it out of history and screenshots
    history.replaceState(null, "", address);
  }
  const source = openSource();
  try {
    const app = new App(source, ...(await Promise.all([source.survey(), source.page(START, FIRST)])));
    app.mark(await source.marks());
    app.draw();
    document.body.classList.remove("starting");
    document.body.dataset.usable = String(performance.now());
    if (source.live) app.look();
  } catch (error) {
    byId("nothing").textContent = `This survey cannot be shown: ${error.message}`;
    document.body.classList.add("empty");
    document.body.classList.remove("starting");
    throw error;
  }
}

start();
