// The dispatch table: every captured graph, what it cost, and whether it was ever replayed. Owns sorting and filtering.

import { bytes, count, element } from "./format.js";

const COLUMNS = [
  ["Stage", (key) => key.stage],
  ["Mode", (key) => key.mode],
  ["Tokens", (key) => key.num_tokens],
  ["Requests", (key) => key.num_reqs ?? -1],
  ["Query length", (key) => key.query_len ?? -1],
  ["Sampler", (key) => key.sampler ?? ""],
  ["Memory", (key) => key.bytes ?? -1],
  ["Capture", (key) => key.capture_ms ?? -1],
  ["Replays", (key, table) => table.replays[key.key] ?? 0],
];

export class DispatchTable {
  constructor() {
    this.report = null;
    this.replays = {};
    this.cells = new Map(); // key -> its row and the cell of its replays
    this.sorted = { column: null, descending: false };
    this.body = document.getElementById("keys");
    this.onlyNever = document.getElementById("only-never");
    this.onlyNever.addEventListener("change", () => this.#arrange());
    document.getElementById("columns").append(...COLUMNS.map(([name], column) => this.#heading(name, column)));
  }

  show(report) {
    this.report = report;
    this.cells.clear();
    for (const key of report.catalog) this.cells.set(key.key, row(key));
    for (const dropped of report.dropped ?? []) this.cells.set(dropped.key, droppedRow(dropped));
    for (const key of report.catalog) this.#write(key.key, false);
    this.#arrange();
  }

  /** Take in replay counts; of those left out nothing has changed. */
  count(replays) {
    Object.assign(this.replays, replays);
    for (const key of Object.keys(replays)) this.#write(key, true);
    if (this.onlyNever.checked) this.#arrange();
    this.#sum();
  }

  #write(key, flash) {
    const cells = this.cells.get(key);
    if (!cells?.replays) return;
    const number = this.replays[key] ?? 0;
    cells.row.classList.toggle("never", number === 0);
    if (number === 0) {
      cells.replays.replaceChildren(element("span", { className: "badge", textContent: "never replayed" }));
      return;
    }
    const most = Math.max(...Object.values(this.replays));
    const filling = element("i");
    filling.style.setProperty("--share", `${Math.max(3, (Math.log1p(number) / Math.log1p(most)) * 100)}%`);
    cells.replays.replaceChildren(element("span", { className: "meter" }, filling), count(number));
    if (flash) cells.row.getAnimations().forEach((animation) => animation.cancel());
    cells.row.classList.remove("hit");
    if (flash) requestAnimationFrame(() => cells.row.classList.add("hit"));
  }

  #arrange() {
    if (!this.report) return;
    let keys = this.report.catalog.filter((key) => !this.onlyNever.checked || !this.replays[key.key]);
    const { column, descending } = this.sorted;
    if (column !== null) {
      const value = (key) => COLUMNS[column][1](key, this);
      const order = (one, other) => (value(one) < value(other) ? -1 : value(one) > value(other) ? 1 : 0);
      keys = keys.toSorted((one, other) => (descending ? order(other, one) : order(one, other)));
    }
    const rows = [...keys, ...(this.report.dropped ?? [])].map(({ key }) => this.cells.get(key).row);
    if (!rows.length) {
      const text = this.report.catalog.length ? "Every graph was replayed." : `Policy ${this.report.policy} captures no graph.`;
      rows.push(element("tr", {}, element("td", { colSpan: COLUMNS.length, className: "note", textContent: text })));
    }
    this.body.replaceChildren(...rows);
    this.#sum();
  }

  #sum() {
    const keys = this.report?.catalog ?? [];
    if (!keys.length) return;
    const used = keys.filter((key) => this.replays[key.key]).length;
    const memory = keys.reduce((sum, key) => sum + (key.bytes ?? 0), 0) + (this.report.shared_bytes ?? 0);
    const seconds = keys.reduce((sum, key) => sum + (key.capture_ms ?? 0), 0) / 1000;
    document.getElementById("graphs-sum").textContent =
      `${keys.length} captured in ${seconds.toFixed(1)} s, ${bytes(memory)}; ${used} replayed, ${keys.length - used} never.`;
  }

  #heading(name, column) {
    const button = element("button", { type: "button", textContent: name });
    const heading = element("th", { scope: "col" }, button);
    button.addEventListener("click", () => {
      const again = this.sorted.column === column;
      this.sorted = { column, descending: again ? !this.sorted.descending : column > 1 };
      for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", this.sorted.descending ? "descending" : "ascending");
      this.#arrange();
    });
    return heading;
  }
}

function row(key) {
  const replays = element("td");
  const cell = (text) => element("td", { textContent: text ?? "any" });
  const made = element("tr", { title: key.key }, cell(key.stage),
    element("td", {}, element("i", { className: `swatch ${key.mode}` }), key.mode.toUpperCase()),
    cell(count(key.num_tokens)), cell(key.num_reqs), cell(key.query_len), cell(key.sampler ?? "none"),
    cell(bytes(key.bytes)), cell(key.capture_ms == null ? "–" : `${key.capture_ms.toFixed(1)} ms`), replays);
  return { row: made, replays };
}

function droppedRow(dropped) {
  const told = element("td", { colSpan: COLUMNS.length, title: dropped.detail ?? "" },
    element("span", { className: "badge", textContent: "dropped" }), ` ${dropped.key}: `, element("code", { textContent: dropped.reason }));
  return { row: element("tr", { className: "never" }, told), replays: null };
}
