// What a person has chosen, kept in the address so that a link or a reload brings it back.

export const MOST_PINNED = 6;

const PLAIN = {
  ranges: {}, // column → [lowest, highest], null for an open end
  sort: "value",
  descending: false,
  limit: null, // of the sorted points, the first ones only
  x: "",
  y: "",
  colour: "value",
  tab: "wall",
  size: "medium",
  stretch: "linear",
  pinned: [], // numbers of the points to compare
};

export function firstState(points, facts) {
  const state = { ...PLAIN, ...remembered(points) };
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

// what to draw against what, as long as nobody chose
export function settle(state, points) {
  const telling = points.telling.map((column) => column.key);
  const merits = [
    ...points
      .of("part")
      .filter((column) => column.varies)
      .map((column) => column.key),
    ...telling,
  ];
  if (!telling.includes(state.x)) state.x = merits[0] ?? "value";
  if (!telling.includes(state.y)) state.y = merits.find((key) => key !== state.x) ?? state.x;
  if (!telling.includes(state.colour)) state.colour = telling[0] ?? "value";
}
