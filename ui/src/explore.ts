// The Explore view: a query, its plot and its table. The address holds its state; a change of it runs the query.

import { ApiError, isAbort, labelValues, queryInstant, queryRange, type Answer, type MatrixItem, type QueryData } from "./api.ts";
import { alignSamples, alignToGrid } from "./align.ts";
import { Controls } from "./controls.ts";
import { chosenDatabase, databaseAddress, DEFAULT_DATABASE } from "./database.ts";
import { metricsElsewhere } from "./elsewhere.ts";
import { element } from "./dom.ts";
import { QueryEditor } from "./editor.ts";
import { formatDuration, parseDuration, seriesName, unitOf, type Unit } from "./format.ts";
import { rememberQuery } from "./history.ts";
import { Plot } from "./plot.ts";
import { findSimilar, placeText, queryOf, selectorOf } from "./similar.ts";
import { chooseStep, DEFAULT_STATE, parseState, writeState, type ExploreState } from "./state.ts";
import { TableView, tableOf } from "./table.ts";
import type { View } from "./view.ts";

/** More lines than this tell nothing, and cost a second to draw: others are drawn once they are chosen in the legend. */
const DRAWN_MAX = 100;
/** The legend has no more than this. */
const SERIES_MAX = 1000;
/** A query that takes longer is said to run. */
const BUSY_AFTER_MS = 150;
const EXAMPLES_MAX = 12;
/** Units of the page by the names that the server's pictures have for them. */
const GRAPH_UNITS: Partial<Record<Unit, string>> = { bytes: "bytes", bytes_per_second: "binBps", seconds: "s" };

interface Span {
  start_s: number;
  end_s: number;
  step_s: number;
}

interface Outcome extends Answer<QueryData> {
  span: Span;
  /** What is like the series that others were looked for to. */
  places: string[];
}

export class ExploreView implements View {
  readonly root = element("div", { class: "explore" });
  private readonly editor: QueryEditor;
  private readonly controls: Controls;
  private readonly status = element("p", { class: "status muted", attributes: { role: "status" } });
  private readonly alert = element("div", { class: "error", attributes: { role: "alert" } });
  private readonly notes = element("ul", { class: "notes" });
  private readonly plot: Plot;
  private readonly plotCard: HTMLElement;
  private readonly pictures = element("p", { class: "muted pictures" });
  private readonly table = new TableView();
  private readonly tableCard: HTMLElement;
  private readonly start = element("section", { class: "card empty" });
  private items: MatrixItem[] = [];
  private state: ExploreState = DEFAULT_STATE;
  private cancel = new AbortController();
  private timer = 0;
  private busyTimer = 0;

  constructor() {
    this.editor = new QueryEditor(() => this.submit());
    this.controls = new Controls({ changed: (change) => this.go({ ...this.state, query: this.editor.text, ...change }), run: () => this.submit() });
    this.plot = new Plot({
      title: "Query result",
      height_px: 340,
      zoomed: (from_s, to_s) => this.go({ ...this.state, from_s, to_s }),
      reset: () => this.go({ ...this.state, from_s: null, to_s: null }),
      likeAddress: (index) => this.likeAddress(index),
    });
    this.plotCard = element("section", { class: "card", attributes: { "aria-label": "Plot" } }, this.plot.root, this.pictures);
    this.tableCard = element("section", { class: "card", attributes: { "aria-label": "Table" } }, this.table.root);
    const box = element("div", { class: "query-line" }, this.editor.root, this.controls.runButton);
    this.root.append(
      element("h1", { class: "hidden-visually", text: "Explore" }),
      element("section", { class: "card query" }, box, this.controls.root),
      this.alert,
      this.status,
      this.notes,
      this.start,
      this.plotCard,
      this.tableCard,
    );
    this.clear();
    void this.offerExamples();
  }

  update(parameters: URLSearchParams): void {
    this.state = parseState(parameters);
    this.editor.text = this.state.query;
    this.controls.show(this.state);
    void this.run();
    if (!this.state.query) this.editor.focus();
  }

  destroy(): void {
    clearTimeout(this.timer);
    clearTimeout(this.busyTimer);
    this.cancel.abort();
    this.editor.destroy();
    this.plot.destroy();
  }

  /** What is in the box, run; also when it is the same as before. */
  private submit(): void {
    const query = this.editor.text.trim();
    if (query) rememberQuery(query);
    this.go({ ...this.state, query, like: "" });
  }

  /** Where series like a plotted one are shown, over the range that is plotted. */
  private likeAddress(index: number): string | null {
    const like = this.state.mode === "range" ? selectorOf(this.items[index]?.metric ?? {}) : null;
    return like === null ? null : writeState({ ...this.state, like });
  }

  private go(state: ExploreState): void {
    const hash = writeState(state);
    if (location.hash === hash) void this.run();
    else location.hash = hash;
  }

  private async run(): Promise<void> {
    clearTimeout(this.timer);
    clearTimeout(this.busyTimer);
    this.cancel.abort();
    this.cancel = new AbortController();
    if (!this.state.query) {
      this.clear();
      this.start.hidden = false;
      return;
    }
    this.root.setAttribute("aria-busy", "true");
    clearTimeout(this.busyTimer);
    this.busyTimer = window.setTimeout(() => this.showBusy(), BUSY_AFTER_MS);
    try {
      this.draw(await this.ask(this.cancel.signal));
    } catch (error) {
      // The query in its place is said to run.
      if (isAbort(error)) return;
      this.fail(error instanceof ApiError ? error : new ApiError("page", String(error)));
    }
    clearTimeout(this.busyTimer);
    this.root.removeAttribute("aria-busy");
    const refresh_s = parseDuration(this.state.refresh);
    if (refresh_s !== null) this.timer = window.setTimeout(() => void this.run(), refresh_s * 1000);
  }

  /** What was drawn before stays, dimmed. */
  private showBusy(): void {
    this.start.hidden = true;
    this.status.textContent = "Running the query…";
    this.root.dataset["state"] = "busy";
  }

  private span(): Span {
    const end_s = this.state.to_s ?? Date.now() / 1000;
    const start_s = this.state.from_s ?? end_s - (parseDuration(this.state.range) ?? 3600);
    const width = this.root.clientWidth || 800;
    const step_s = parseDuration(this.state.step) ?? chooseStep(end_s - start_s, width / 2);
    return { start_s, end_s, step_s };
  }

  private async ask(signal: AbortSignal): Promise<Outcome> {
    const span = this.span();
    const { query, mode, like } = this.state;
    if (like && mode === "range") {
      const { data, warnings } = await findSimilar(like, span, signal);
      const answer = await queryRange({ query: queryOf(like, data.result), ...span }, signal);
      const places = data.result.length > 0 ? data.result.map(placeText) : [`Nothing is like ${like}.`];
      return { ...answer, warnings: [...warnings, ...answer.warnings], span, places };
    }
    const answer = mode === "instant" ? queryInstant(query, span.end_s, signal) : queryRange({ query, ...span }, signal);
    return { ...(await answer), span, places: [] };
  }

  private draw(outcome: Outcome): void {
    const { data } = outcome;
    this.clear();
    const count = data.resultType === "vector" || data.resultType === "matrix" ? data.result.length : 1;
    this.status.textContent = statusText(outcome, count, this.state.mode === "range");
    const notes = [...outcome.places.map((text) => ["place", text]), ...outcome.warnings.map((text) => ["warning", text]), ...outcome.infos.map((text) => ["info", text])];
    if (data.resultType === "matrix" && data.result.length > DRAWN_MAX) {
      const more = count > SERIES_MAX ? `, which lists ${SERIES_MAX}` : "";
      notes.push(["info", `The plot shows the first ${DRAWN_MAX} of ${count} series; choose others in the legend${more}. Narrow the query, or use topk().`]);
    }
    this.notes.replaceChildren(...notes.map(([kind, text]) => element("li", { class: kind ?? "", text: text ?? "" })));
    this.tableCard.hidden = count === 0;
    if (count > 0) this.table.show(tableOf(data));
    // A range without series has its axes all the same: a double click on them leads back out of a zoom.
    if (data.resultType === "matrix" && (count > 0 || this.state.mode === "range")) this.drawPlot(data.result, outcome.span);
    this.root.dataset["state"] = "done";
    if (count === 0) void this.lookElsewhere(this.state.query);
  }

  /** Where a query finds nothing: says in which other database its metrics are. */
  private async lookElsewhere(query: string): Promise<void> {
    const found = await metricsElsewhere(query, this.cancel.signal).catch(() => []);
    if (query !== this.state.query) return;
    for (const { metric, database } of found) {
      const link = element("a", { text: database, attributes: { href: databaseAddress(database) } });
      const note = element("li", { class: "info" }, `${metric} is not in the database ${chosenDatabase()}, but in `, link, ".");
      this.notes.append(note);
    }
  }

  private drawPlot(all: MatrixItem[], span: Span): void {
    const items = all.slice(0, SERIES_MAX);
    this.items = items;
    const range = this.state.mode === "range";
    const columns = range ? alignToGrid(items, span.start_s, span.end_s, span.step_s) : alignSamples(items);
    const from_s = range ? span.start_s : (columns.times[0] ?? span.start_s);
    const to_s = Math.max(range ? span.end_s : (columns.times.at(-1) ?? span.end_s), from_s + 1);
    this.plotCard.hidden = false;
    const names = items.map((item) => seriesName(item.metric));
    this.plot.show({ ...columns, names, unit: unitOf(this.state.query), from_s, to_s, drawn: DRAWN_MAX });
    this.pictures.hidden = !range || items.length === 0;
    const links = ["PNG", "SVG", "WebP"].map((format) => {
      const href = pictureAddress(this.state.query, span, format.toLowerCase());
      return element("a", { text: format, attributes: { href, download: `graph.${format.toLowerCase()}` } });
    });
    this.pictures.replaceChildren("Picture: ", ...links.flatMap((link, index) => (index > 0 ? [" · ", link] : [link])));
  }

  private fail(error: ApiError): void {
    this.clear();
    this.alert.hidden = false;
    this.alert.replaceChildren(element("strong", { text: error.kind }), element("code", { text: error.message }));
    this.notes.replaceChildren(...error.warnings.map((text) => element("li", { class: "warning", text })));
    this.root.dataset["state"] = "failed";
  }

  private clear(): void {
    for (const part of [this.alert, this.plotCard, this.tableCard, this.start]) part.hidden = true;
    this.status.textContent = "";
    this.notes.replaceChildren();
    delete this.root.dataset["state"];
  }

  /** Before a first query: names that exist, to begin with. */
  private async offerExamples(): Promise<void> {
    const names = await labelValues("__name__").then(
      ({ data }) => data,
      () => [],
    );
    // Spread over the alphabet, since neighbours are much alike.
    const every = Math.max(1, names.length / EXAMPLES_MAX);
    const some = names.filter((_, index) => Math.floor(index / every) !== Math.floor((index - 1) / every));
    const links = some.map((name) => {
      const href = writeState({ ...DEFAULT_STATE, query: name });
      return element("a", { class: "chip", text: name, attributes: { href } });
    });
    const text =
      names.length > 0
        ? `${names.length.toLocaleString("en-US")} metrics are stored here. Type part of a name, or begin with one of these:`
        : "Nothing is stored here yet. Home shows how to write a first point.";
    this.start.replaceChildren(element("h2", { text: "Ask a question" }), element("p", { text }), element("div", { class: "chips" }, ...links));
  }
}

/** The address of the plot as a picture that the server draws. */
function pictureAddress(query: string, { start_s, end_s, step_s }: Span, format: string): string {
  const form = new URLSearchParams({ query, start: String(start_s), end: String(end_s), step: String(step_s), format });
  form.set("theme", document.documentElement.dataset["theme"] ?? "light");
  form.set("tz", Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC");
  form.set("title", query);
  const unit = GRAPH_UNITS[unitOf(query)];
  if (unit) form.set("unit", unit);
  const database = chosenDatabase();
  if (database !== DEFAULT_DATABASE) form.set("db", database);
  return `api/v1/graph?${form}`;
}

function statusText({ data, elapsed_ms, span }: Outcome, count: number, range: boolean): string {
  const took = `${elapsed_ms < 10 ? elapsed_ms.toFixed(1) : Math.round(elapsed_ms)} ms`;
  if (count === 0) return `No series in this ${range ? "range" : "moment"} · ${took}`;
  const parts = [`${count.toLocaleString("en-US")} series`];
  if (data.resultType === "matrix") {
    const points = data.result.reduce((sum, item) => sum + (item.values?.length ?? 0) + (item.histograms?.length ?? 0), 0);
    parts.push(`${points.toLocaleString("en-US")} points`);
  }
  if (range) parts.push(`step ${formatDuration(span.step_s)}`);
  return [...parts, took].join(" · ");
}
