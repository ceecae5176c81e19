// The page as a whole: one state (ranges, order, what is shown), one selection made from it, and views that draw it.

import { forgetTheme } from "./canvas.js";
import { CloseUp } from "./closeup.js";
import { byId, el, picker, settled } from "./dom.js";
import { Failures } from "./failures.js";
import { Filters } from "./filters.js";
import { Header } from "./header.js";
import { short, whole } from "./numbers.js";
import { Parallel } from "./parallel.js";
import { Points } from "./points.js";
import { Scatter } from "./scatter.js";
import { openSource } from "./source.js";
import { Stack } from "./stack.js";
import { Table } from "./table.js";
import { Wall } from "./wall.js";

const FIRST = 2000; // points of the first page, so that something is there at once
const PAGE = 25000;
const START = [-1, -1]; // before the first point: time, number
const OFTEN = 1500; // milliseconds between looks at a running survey
const SELDOM = 6000;
const LATE = 30; // seconds that a point from another worker may come after later ones
const MOST_PINNED = 6;
const LIMITS = [["", "all"], ...[10, 25, 50, 100, 200, 500, 1000].map((n) => [String(n), `best ${n}`])];
const PLAIN = { ranges: {}, sort: "value", descending: false, limit: null, x: "", y: "", colour: "value", tab: "wall", size: "medium", stretch: "linear", pinned: [] };

class App {
  constructor(source, { facts, progress }, page) {
    Object.assign(this, { source, facts, progress });
    this.points = new Points(facts);
    this.take(page);
    this.state = { ...PLAIN, ...this.remembered() };
    if (!facts.shape && this.state.tab === "wall") this.state.tab = "table";
    this.header = new Header(facts);
    this.closeUp = new CloseUp(this);
    const columns = (points) => ["id", "status", "value"].map((key) => points.column(key)).concat(points.of("part"), points.of("axis"), ["steps", "seconds"].map((key) => points.column(key)));
    const table = new Table(this, "table", byId("table"), columns, (selection) => selection.rows);
    this.views = [new Filters(this), new Scatter(this), new Parallel(this), new Wall(this), table, new Failures(this), new Stack(this)];
    this.rememberSoon = settled(300, () => history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(this.state))}`));
    document.body.classList.toggle("plain", !facts.shape);
    for (const tab of document.querySelectorAll("[data-tab]")) tab.onclick = () => this.change({ tab: tab.dataset.tab });
    byId("compare").onclick = () => this.closeUp.compare(this.state.pinned);
    window.addEventListener("resize", () => this.refresh());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => forgetTheme() || this.refresh());
  }

  // a state from the address, as far as this survey has its columns
  remembered() {
    try {
      const found = JSON.parse(decodeURIComponent(location.hash.slice(1)));
      const known = (key) => this.points.columns.has(key);
      const kept = Object.fromEntries(Object.keys(PLAIN).filter((name) => typeof found[name] === typeof PLAIN[name]).map((name) => [name, found[name]]));
      const bound = (b) => b === null || Number.isFinite(b);
      kept.ranges = Object.fromEntries(Object.entries(found.ranges ?? {}).filter(([key, range]) => known(key) && Array.isArray(range) && range.length === 2 && range.every(bound)));
      for (const name of ["sort", "colour", "x", "y"]) if (!known(kept[name])) delete kept[name];
      kept.limit = Number.isInteger(found.limit) ? found.limit : null;
      kept.pinned = Array.isArray(found.pinned) ? found.pinned.filter(Number.isInteger).slice(0, MOST_PINNED) : [];
      return kept;
    } catch {
      return {};
    }
  }

  change(part) {
    Object.assign(this.state, part);
    this.refresh();
    this.rememberSoon();
  }

  // key → range, or null for none
  narrow(ranges) {
    const joined = { ...this.state.ranges, ...ranges };
    this.change({ ranges: Object.fromEntries(Object.entries(joined).filter(([, r]) => r && (r[0] !== null || r[1] !== null))) });
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
    this.settle();
    const started = performance.now();
    const selection = points.select(state);
    this.view = { points, state, facts, progress, selection };
    document.body.dataset.tab = state.tab;
    document.body.classList.toggle("empty", !selection.rows.length);
    for (const tab of document.querySelectorAll("[data-tab]")) tab.setAttribute("aria-selected", String(tab.dataset.tab === state.tab));
    byId("failures-count").textContent = whole(selection.failures.length);
    byId("compare").textContent = `Compare ${state.pinned.length}`;
    byId("compare").hidden = !state.pinned.length;
    byId("nothing").textContent = points.count ? "No point lies within all ranges. Widen one, or start over with Reset." : "No point is finished yet. This page fills itself as the survey runs.";
    this.toolbar();
    this.header.show(this.view);
    for (const view of this.views) view.show(this.view);
    document.body.dataset.drawn = `${points.count} ${selection.rows.length}`;
    document.body.dataset.milliseconds = String(performance.now() - started);
  }

  // what to draw against what, as long as nobody chose
  settle() {
    const { points, state } = this;
    const telling = points.telling.map((c) => c.key);
    const parts = points.of("part").filter((c) => c.varies).map((c) => c.key);
    const merits = [...parts, ...telling];
    if (!telling.includes(state.x)) state.x = merits[0] ?? "value";
    if (!telling.includes(state.y)) state.y = merits.find((key) => key !== state.x) ?? state.x;
    if (!telling.includes(state.colour)) state.colour = telling[0] ?? "value";
  }

  toolbar() {
    const { points, state, source, facts } = this;
    const columns = points.telling.filter((c) => c.kind === "number").map((c) => [c.key, c.title]);
    if (!columns.some(([key]) => key === state.sort)) columns.unshift([state.sort, points.column(state.sort).title]);
    const key = JSON.stringify([columns, state.sort, state.descending, state.limit, state.size, state.stretch]);
    if (key === this.tools) return;
    this.tools = key;
    const limits = LIMITS.some(([n]) => n === String(state.limit ?? "")) ? LIMITS : [...LIMITS, [String(state.limit), `best ${state.limit}`]];
    const tools = [
      picker("Rank by", columns, state.sort, (sort) => this.change({ sort, descending: false })),
      el("button", { textContent: state.descending ? "↓ highest first" : "↑ lowest first", onclick: () => this.change({ descending: !state.descending }) }),
      picker("Keep", limits, String(state.limit ?? ""), (n) => this.change({ limit: n ? Number(n) : null })),
    ];
    if (facts.shape) tools.push(picker("Size", ["small", "medium", "large"].map((s) => [s, s]), state.size, (size) => this.change({ size })));
    if (facts.shape && source.live) tools.push(picker("Stretch", [["linear", "linear"], ["sqrt", "square root"], ["log", "logarithm"]], state.stretch, (stretch) => this.change({ stretch })));
    byId("tools").replaceChildren(...tools);
  }

  // the picture of a row, or an empty frame where there is none
  picture(row, most, options = {}) {
    const { points, state, source, facts } = this;
    const { live } = source;
    const id = points.value("id", row);
    const address = facts.shape ? source.picture(id, points.value("finished", row), live ? { most, stretch: state.stretch, ...options } : {}) : null;
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
        return el("div", {}, el("span", { textContent: column.label }), el("b", { textContent: column.show(column.values[row], short) }));
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

  async look() {
    try {
      const { facts, progress } = await this.source.survey();
      const kinds = (all) => JSON.stringify(all.columns);
      if (kinds(facts) !== kinds(this.facts)) return location.reload(); // the first points told that an axis is of texts
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
