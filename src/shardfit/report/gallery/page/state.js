// What a person has chosen, kept in the address so that a link or a reload brings it back.

export const MOST_PINNED = 6;

const PLAIN = {
  ranges: {}, // column → [lowest, highest], null for an open end
  sort: "",
  descending: false,
  limit: null, // of the sorted points, the first ones only
  x: "",
  y: "",
  colour: "",
  tab: "wall",
  size: "medium",
  stretch: "linear",
  tag: "", // of the points to show
  align: false, // pictures, before their mean
  axes: [], // columns of the plot of all axes; none: all that vary
  pinned: [], // numbers of the points to compare
  open: null, // number of the point whose page is open
};

export function firstState(points, facts) {
  const state = { ...PLAIN, sort: facts.rank, ...remembered(points) };
  if (!facts.shape && state.tab === "wall") state.tab = "table";
  return state;
}

export function remember(state) {
  history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(state))}`);
}

// what the address says, as far as it makes sense and this survey has its columns
function remembered(points) {
  let found;
  try {
    found = JSON.parse(decodeURIComponent(location.hash.slice(1)));
  } catch {
    return {};
  }
  const names = Object.keys(PLAIN).filter((name) => typeof found?.[name] === typeof PLAIN[name]);
  const kept = Object.fromEntries(names.map((name) => [name, found[name]]));
  const known = (key) => points.columns.has(key);
  const isRange = (range) =>
    Array.isArray(range) && range.length === 2 && range.every((b) => b === null || Number.isFinite(b));
  const ranges = Object.entries(found?.ranges ?? {});
  kept.ranges = Object.fromEntries(ranges.filter(([key, range]) => known(key) && isRange(range)));
  for (const name of ["sort", "colour", "x", "y"]) if (!known(kept[name])) delete kept[name];
  kept.axes = Array.isArray(found?.axes) ? found.axes.filter(known) : [];
  kept.open = Number.isInteger(found?.open) ? found.open : null;
  kept.limit = Number.isInteger(found?.limit) ? found.limit : null;
  kept.pinned = Array.isArray(found?.pinned) ? found.pinned.filter(Number.isInteger).slice(0, MOST_PINNED) : [];
  for (const [name, choices] of [
    ["tab", ["wall", "table", "failures"]],
    ["size", ["small", "medium", "large"]],
    ["stretch", ["linear", "sqrt", "log"]],
  ]) {
    if (!choices.includes(kept[name])) delete kept[name];
  }
  return kept;
}

const own = {}; // what was chosen here, not by a person: chosen anew as columns begin to vary

// what to draw against what, as long as nobody chose
export function settle(state, points, facts) {
  const telling = points.telling.map((column) => column.key);
  const merits = [
    ...points
      .of("part")
      .filter((column) => column.varies)
      .map((column) => column.key),
    ...telling,
  ];
  const data = merits.filter((key) => key.startsWith("part.data"));
  const first = [...data, ...merits];
  const open = (name) => !telling.includes(state[name]) || state[name] === own[name];
  if (open("x")) state.x = own.x = first[0] ?? "value";
  if (open("y")) state.y = own.y = first.find((key) => key !== state.x) ?? state.x;
  if (open("colour")) state.colour = own.colour = telling.includes(facts.rank) ? facts.rank : (telling[0] ?? "value");
}
