// Points that failed, and why.

import { byId, el } from "./dom.js";
import { whole } from "./numbers.js";
import { Table } from "./table.js";

export class Failures {
  constructor(app) {
    const columns = (points) => [...["id", "status", "reason"].map((key) => points.column(key)), ...points.of("axis")];
    this.table = new Table(app, "failures", byId("failures"), columns, (selection) => selection.failures);
    this.app = app;
  }

  show(view) {
    const { points, selection, state } = view;
    if (state.tab !== "failures") return;
    const reasons = new Map();
    const { names, values } = points.column("reason");
    for (const row of selection.failures) {
      const reason = names[values[row]] || "no reason was given";
      reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
    }
    const most = [...reasons].sort((a, b) => b[1] - a[1]).slice(0, 4);
    const lines = most.map(([reason, n]) =>
      el("li", {}, el("b", { textContent: whole(n) }), ` ${reason.slice(0, 300)}`),
    );
    if (reasons.size > most.length)
      lines.push(el("li", { textContent: `and ${whole(reasons.size - most.length)} other reasons` }));
    const { source } = this.app;
    if (lines.length && source.live)
      lines.push(
        el(
          "li",
          {},
          el("a", { href: source.table(points.askedFailed(state)), download: "", textContent: "Table of these (CSV)" }),
        ),
      );
    byId("reasons").replaceChildren(...lines);
    this.table.show(view);
  }
}
