// How the points are ranked, how many are kept, and how pictures look.

import { byId, el, picker } from "./dom.js";

const LIMITS = [10, 25, 50, 100, 200, 500, 1000];
const SIZES = [
  ["small", "small"],
  ["medium", "medium"],
  ["large", "large"],
];
const STRETCHES = [
  ["linear", "linear"],
  ["sqrt", "square root"],
  ["log", "logarithm"],
];

export class Toolbar {
  constructor(app) {
    this.app = app;
  }

  show({ points, state, facts }) {
    const columns = points.telling
      .filter((column) => column.kind === "number")
      .map((column) => [column.key, column.title]);
    if (!columns.some(([key]) => key === state.sort)) columns.unshift([state.sort, points.column(state.sort).title]);
    const tags = Object.entries(points.tags).map(([name, ids]) => [name, `${name} (${ids.size})`]);
    const { sort, descending, limit, size, stretch, tag } = state;
    const key = JSON.stringify([columns, sort, descending, limit, size, stretch, tag, tags]);
    if (key === this.built) return;
    this.built = key;
    const { app } = this;
    const turn = el("button", { textContent: state.descending ? "↓ highest first" : "↑ lowest first" });
    turn.onclick = () => app.change({ descending: !state.descending });
    const keep = (n) => app.change({ limit: n ? Number(n) : null });
    const tools = [
      picker("Rank by", columns, state.sort, (sort) => app.change({ sort, descending: false })),
      turn,
      picker("Keep", limitsWith(state.limit), String(state.limit ?? ""), keep),
    ];
    if (tags.length)
      tools.push(picker("Tag", [["", "any"], ...tags], tag, (name) => app.change({ tag: name })));
    if (facts.shape) tools.push(picker("Size", SIZES, state.size, (size) => app.change({ size })));
    if (facts.shape && app.source.live)
      tools.push(picker("Stretch", STRETCHES, state.stretch, (stretch) => app.change({ stretch })));
    byId("tools").replaceChildren(...tools);
  }
}

function limitsWith(limit) {
  const known = limit === null || LIMITS.includes(limit) ? LIMITS : [...LIMITS, limit];
  return [["", "all"], ...known.map((n) => [String(n), `best ${n}`])];
}
