// Where the points come from: a server that is asked again and again, or the page itself.

import { byId } from "./dom.js";

export function openSource() {
  const embedded = byId("embedded");
  return embedded ? new EmbeddedSource(JSON.parse(embedded.textContent)) : new ServerSource();
}

async function fetched(address, options) {
  const answer = await fetch(address, options);
  if (!answer.ok) throw new Error((await answer.text()).slice(0, 300));
  return answer.json();
}

class ServerSource {
  live = true;

  survey() {
    return fetched("api/survey");
  }

  page([finished, id], limit) {
    return fetched(`api/points?${new URLSearchParams({ finished, id, limit })}`);
  }

  // the time in the address makes the browser fetch anew what was run anew
  picture(id, finished, options = {}) {
    return `api/picture/${id}.png?${new URLSearchParams({ ...options, at: finished })}`;
  }

  array(id) {
    return `api/picture/${id}.npy`;
  }

  stack(asked, align, signal) {
    return fetched(`api/stack?align=${align}&${this.query(asked)}`, { signal });
  }

  stackArray(asked, align, kind) {
    return `api/stack.npy?kind=${kind}&align=${align}&${this.query(asked)}`;
  }

  // the selection in another form: csv, fits, toml
  points(asked, kind) {
    return `api/points.${kind}?${this.query(asked)}`;
  }

  point(id) {
    return fetched(`api/point/${id}`);
  }

  // drawn for this question, which may take seconds
  figures(id, signal) {
    return fetched(`api/point/${id}/figures`, { signal });
  }

  marks() {
    return fetched("api/marks");
  }

  // content: points, and tag (with remove) or note
  mark(content) {
    const headers = { "Content-Type": "application/json" };
    return fetched("api/mark", { method: "POST", headers, body: JSON.stringify(content) });
  }

  table(asked) {
    return `api/points.csv?${this.query(asked)}`;
  }

  query(asked) {
    return new URLSearchParams({ selection: JSON.stringify(asked) });
  }
}

class EmbeddedSource {
  live = false;

  constructor(content) {
    this.content = content; // facts, progress, page, pictures by number, stack, leftOut
  }

  get leftOut() {
    return this.content.left_out;
  }

  async survey() {
    return { facts: this.content.facts, progress: this.content.progress };
  }

  async page() {
    return this.content.page;
  }

  picture(id) {
    const found = this.content.pictures[id];
    return found ? `data:image/png;base64,${found}` : null;
  }

  async stack() {
    return this.content.stack;
  }

  async marks() {
    return this.content.marks;
  }
}
