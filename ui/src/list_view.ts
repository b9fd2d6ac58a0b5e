// A list that the server keeps up to date: loaded again and again, filtered by a text and a state, drawn as tables by group.

import { type Answer, isAbort, type Labels } from "./api.ts";
import { element, select } from "./dom.ts";
import type { View } from "./view.ts";

const REFRESH_MS = 5000;
/** Rows of one table that are drawn. */
const ROWS_MAX = 500;

type Cell = string | Node;

/** A row, and what the filter looks at. */
export interface Row {
  cells: Cell[];
  text: string;
  state: string;
}

export interface Group {
  title: string;
  /** Each is shown above the table. */
  errors: string[];
  heads: readonly string[];
  rows: Row[];
  /** Shown below the table. */
  picture?: HTMLElement;
}

export interface ListOptions<T> {
  title: string;
  /** What the filter looks for, as its placeholder says. */
  filtered: string;
  /** States to choose from: value and text. The empty one is all of them. */
  states: readonly (readonly [string, string])[];
  load: (signal: AbortSignal) => Promise<Answer<T>>;
  groups: (data: T) => Group[];
  /** Shown where there is no group. */
  nothing: string;
  /** Called when the view goes. */
  destroyed?: () => void;
}

export const labelsOf = (labels: Labels): string =>
  Object.entries(labels)
    .map(([name, value]) => `${name}="${value}"`)
    .join(", ");

export function ago(time: string): string {
  const seconds = (Date.now() - Date.parse(time)) / 1000;
  // Go's zero time stands for never.
  return seconds > 1e9 ? "never" : `${Math.max(0, seconds).toFixed(1)} s ago`;
}

export const milliseconds = (seconds: number): string => `${(seconds * 1000).toFixed(1)} ms`;

/** A link to an expression's plot. */
export const expression = (query: string): HTMLAnchorElement =>
  element("a", { text: query, attributes: { href: `#/explore?${new URLSearchParams({ q: query })}` } });

export class ListView<T> implements View {
  readonly root: HTMLElement;
  private readonly options: ListOptions<T>;
  private readonly list = element("div");
  private readonly filter: HTMLInputElement;
  private readonly state: HTMLSelectElement;
  private readonly abort = new AbortController();
  private readonly timer: number;
  private found: { data: T } | null = null;

  constructor(options: ListOptions<T>) {
    this.options = options;
    this.filter = element("input", {
      attributes: { type: "search", placeholder: options.filtered, "aria-label": "Filter" },
      on: { input: () => this.draw() },
    });
    const { field, input } = select("State", options.states, () => this.draw());
    this.state = input;
    const heading = element("h1", { text: options.title });
    this.root = element("section", {}, heading, field, this.filter, this.list);
    this.timer = window.setInterval(() => this.load(), REFRESH_MS);
    this.load();
  }

  update(): void {
    this.draw();
  }

  destroy(): void {
    clearInterval(this.timer);
    this.abort.abort();
    this.options.destroyed?.();
  }

  private load(): void {
    this.options
      .load(this.abort.signal)
      .then(({ data }) => {
        this.found = { data };
        this.draw();
      })
      .catch((error: unknown) => {
        if (isAbort(error)) return;
        const text = String(error instanceof Error ? error.message : error);
        this.list.replaceChildren(element("p", { class: "error", text, attributes: { role: "alert" } }));
      });
  }

  private isWanted(row: Row): boolean {
    const wanted = this.filter.value.trim().toLowerCase();
    const state = this.state.value;
    return row.text.toLowerCase().includes(wanted) && (state === "" || state === row.state);
  }

  private draw(): void {
    if (!this.found) return;
    const groups = this.options.groups(this.found.data);
    if (groups.length === 0) {
      this.list.replaceChildren(element("p", { class: "card-note", text: this.options.nothing }));
      return;
    }
    this.list.replaceChildren(...groups.map((group) => this.group(group)));
  }

  private group({ title, errors, heads, rows, picture }: Group): HTMLElement {
    const shown = rows.filter((row) => this.isWanted(row));
    const drawn = shown.slice(0, ROWS_MAX).map(({ cells }) =>
      element("tr", {}, ...cells.map((cell) => element("td", {}, cell))),
    );
    const table = element(
      "table",
      {},
      element("thead", {}, element("tr", {}, ...heads.map((text) => element("th", { text })))),
      element("tbody", {}, ...drawn),
    );
    return element(
      "section",
      { class: "table" },
      element("h2", { text: title }),
      ...errors.map((text) => element("p", { class: "error", text })),
      shown.length > 0 ? element("div", { class: "table-scroll" }, table) : null,
      shown.length > 0 ? (picture ?? null) : null,
      shown.length > ROWS_MAX ? element("p", { text: `${shown.length - ROWS_MAX} more: filter them.` }) : null,
    );
  }
}
