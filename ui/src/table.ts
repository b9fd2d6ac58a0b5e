// A query's series as rows: a column for each label, then the values. Every column sorts.

import { digest, parseSample } from "./align.ts";
import type { Labels, QueryData, VectorItem } from "./api.ts";
import { element } from "./dom.ts";
import { formatTime, formatValue, seriesName } from "./format.ts";

const ROWS_MAX = 500;
/** With more label names than this, a row's labels are one text. */
const LABEL_COLUMNS_MAX = 10;

type Cell = string | number;

export interface Table {
  columns: { title: string; numeric: boolean }[];
  rows: Cell[][];
}

function labelColumns(all: Labels[]): { titles: string[]; cells: (labels: Labels) => string[] } {
  const names = new Set<string>();
  for (const labels of all) for (const name of Object.keys(labels)) names.add(name);
  names.delete("__name__");
  if (names.size > LABEL_COLUMNS_MAX) return { titles: ["series"], cells: (labels) => [seriesName(labels)] };
  const sorted = [...names].sort();
  if (all.some((labels) => labels["__name__"] !== undefined)) sorted.unshift("__name__");
  const titles = sorted.map((name) => (name === "__name__" ? "metric" : name));
  return { titles, cells: (labels) => sorted.map((name) => labels[name] ?? "") };
}

function vectorValue(item: VectorItem): Cell {
  if (item.value) return parseSample(item.value[1]);
  return item.histogram ? `histogram of ${item.histogram[1].count}, sum ${item.histogram[1].sum}` : "";
}

const numeric = (title: string): { title: string; numeric: boolean } => ({ title, numeric: true });
const text = (title: string): { title: string; numeric: boolean } => ({ title, numeric: false });

/** Rows of any kind of answer. */
export function tableOf(data: QueryData): Table {
  if (data.resultType === "scalar" || data.resultType === "string") {
    const [time_s, value] = data.result;
    const cell = data.resultType === "scalar" ? parseSample(value) : value;
    return { columns: [text("time"), numeric("value")], rows: [[formatTime(time_s), cell]] };
  }
  const labels = labelColumns(data.result.map((item) => item.metric));
  if (data.resultType === "vector") {
    const rows = data.result.map((item) => [...labels.cells(item.metric), vectorValue(item)]);
    return { columns: [...labels.titles.map(text), numeric("value")], rows };
  }
  const rows = data.result.map((item) => {
    const { last, min, mean, max } = digest(item.values ?? []);
    return [...labels.cells(item.metric), last, min, mean, max];
  });
  return { columns: [...labels.titles.map(text), ...["last", "min", "mean", "max"].map(numeric)], rows };
}

/** Numbers by size with NaN last, texts as people sort them ("cpu2" before "cpu10"). */
function compare(one: Cell, other: Cell): number {
  if (typeof one === "number" && typeof other === "number") {
    if (Number.isNaN(one) || Number.isNaN(other)) return Number(Number.isNaN(one)) - Number(Number.isNaN(other));
    return one - other;
  }
  return String(one).localeCompare(String(other), undefined, { numeric: true });
}

export function sortRows(rows: Cell[][], column: number, descending: boolean): Cell[][] {
  const sign = descending ? -1 : 1;
  return [...rows].sort((one, other) => sign * compare(one[column] ?? "", other[column] ?? ""));
}

export class TableView {
  readonly root = element("div", { class: "table" });
  private table: Table = { columns: [], rows: [] };
  private sorted: { title: string; descending: boolean } | null = null;
  private rows_max = ROWS_MAX;

  show(table: Table): void {
    this.table = table;
    this.rows_max = ROWS_MAX;
    this.draw();
  }

  private draw(): void {
    const { columns, rows } = this.table;
    const column = columns.findIndex(({ title }) => title === this.sorted?.title);
    const ordered = this.sorted && column >= 0 ? sortRows(rows, column, this.sorted.descending) : rows;
    const head = element("tr", {}, ...columns.map((each) => this.heading(each.title, each.numeric)));
    const body = element("tbody", {}, ...ordered.slice(0, this.rows_max).map((row) => this.row(row)));
    const table = element("table", {}, element("thead", {}, head), body);
    const scroll = element("div", { class: "table-scroll", attributes: { tabindex: "0", role: "region", "aria-label": "Result table" } }, table);
    this.root.replaceChildren(scroll);
    if (ordered.length > this.rows_max) this.root.append(this.more(ordered.length));
  }

  private heading(title: string, isNumeric: boolean): HTMLTableCellElement {
    const sorted = this.sorted?.title === title ? this.sorted : null;
    const arrow = sorted ? (sorted.descending ? " ↓" : " ↑") : "";
    const sort = (): void => {
      this.sorted = { title, descending: sorted ? !sorted.descending : isNumeric };
      this.draw();
      this.root.querySelector<HTMLElement>(`th[data-title="${CSS.escape(title)}"] button`)?.focus();
    };
    const button = element("button", { text: title + arrow, attributes: { type: "button" }, on: { click: sort } });
    const order = sorted ? (sorted.descending ? "descending" : "ascending") : "none";
    const attributes = { "aria-sort": order, scope: "col", "data-title": title };
    return element("th", { class: isNumeric ? "numeric" : "", attributes }, button);
  }

  private row(cells: Cell[]): HTMLTableRowElement {
    return element(
      "tr",
      {},
      ...cells.map((cell) =>
        typeof cell === "number"
          ? element("td", { class: "numeric", text: exact(cell), attributes: { title: String(cell) } })
          : element("td", { text: cell }),
      ),
    );
  }

  private more(count: number): HTMLElement {
    const showAll = (): void => {
      this.rows_max = Infinity;
      this.draw();
    };
    const button = element("button", { text: `Show all ${count.toLocaleString("en-US")}`, attributes: { type: "button" }, on: { click: showAll } });
    return element("p", { class: "muted" }, `The first ${this.rows_max} rows of ${count.toLocaleString("en-US")}. `, button);
  }
}

/** Enough digits to tell values apart; the whole number is in the cell's title. */
function exact(value: number): string {
  if (!Number.isFinite(value)) return formatValue(value, "plain");
  const magnitude = Math.abs(value);
  if (magnitude !== 0 && (magnitude >= 1e15 || magnitude < 1e-6)) return value.toExponential(5);
  return value.toLocaleString("en-US", { maximumSignificantDigits: Math.max(8, Math.ceil(Math.log10(magnitude + 1))) });
}
