// The home view: this machine and this program, live.

import { ApiError, isAbort, queryRange } from "./api.ts";
import { alignToGrid, type Cell } from "./align.ts";
import { element, Segmented } from "./dom.ts";
import { formatClock, formatValue, parseDuration } from "./format.ts";
import { PANELS, type Panel } from "./panels.ts";
import { lastValue, Plot } from "./plot.ts";
import { chooseStep, DEFAULT_STATE, writeState } from "./state.ts";
import type { View } from "./view.ts";

const RANGES = [
  ["5m", "5 min"],
  ["15m", "15 min"],
  ["1h", "1 h"],
  ["6h", "6 h"],
  ["24h", "24 h"],
] as const;
const REFRESH_MS = 5000;
/** The server samples this often. */
const SAMPLE_S = 5;
const POINTS = 240;
/** A database started just now is drawn over at least this long. */
const LENGTH_LEAST_S = 30;

interface Span {
  start_s: number;
  end_s: number;
  step_s: number;
  window: string;
}

interface PanelData {
  times: number[];
  names: string[];
  values: Cell[][];
  colours: number[];
}

function spanOf(range: string): Span {
  const length_s = parseDuration(range) ?? 900;
  const step_s = Math.max(SAMPLE_S, chooseStep(length_s, POINTS));
  const end_s = Math.floor(Date.now() / 1000);
  return { start_s: end_s - length_s, end_s, step_s, window: `${Math.max(6 * SAMPLE_S, 4 * step_s)}s` };
}

function expressionOf(expression: string, span: Span): string {
  return expression.replaceAll("$window", span.window);
}

async function fetchPanel(panel: Panel, span: Span, signal: AbortSignal): Promise<PanelData> {
  const answers = await Promise.all(
    panel.queries.map((query) => queryRange({ ...span, query: expressionOf(query.expression, span) }, signal)),
  );
  const data: PanelData = { times: [], names: [], values: [], colours: [] };
  for (const [index, { data: found }] of answers.entries()) {
    if (found.resultType !== "matrix") continue;
    // Aligned backwards from now, so that the newest sample is always drawn.
    const columns = alignToGrid(found.result, span.start_s, span.end_s, span.step_s);
    data.times = columns.times;
    data.names.push(...found.result.map((item) => panel.queries[index]?.name(item.metric) ?? ""));
    data.values.push(...columns.values);
  }
  return ordered(data, panel.order ?? []);
}

/** Known names first, in their order and with its colours; then the rest. */
function ordered(data: PanelData, order: readonly string[]): PanelData {
  let next = order.length;
  const colours = data.names.map((name) => (order.includes(name) ? order.indexOf(name) : next++));
  const rows = colours.map((colour, index) => ({ colour, name: data.names[index] ?? "", values: data.values[index] ?? [] }));
  rows.sort((one, other) => one.colour - other.colour);
  return {
    times: data.times,
    names: rows.map(({ name }) => name),
    values: rows.map(({ values }) => values),
    colours: rows.map(({ colour }) => colour),
  };
}

/** One panel on the page. */
class Card {
  readonly root: HTMLElement;
  private readonly headline = element("span", { class: "headline" });
  private readonly note = element("p", { class: "card-note" });
  private readonly link: HTMLAnchorElement;
  private readonly plot: Plot;

  constructor(private readonly panel: Panel) {
    this.plot = new Plot({
      title: panel.title,
      height_px: 168,
      stacked: panel.stacked ?? false,
      fromZero: true,
      y_max_least: panel.y_max_least ?? 0,
      syncKey: "home",
    });
    this.link = element("a", { text: panel.title, attributes: { title: "Open in Explore" } });
    this.root = element(
      "section",
      { class: "card" },
      element("header", {}, element("h2", {}, this.link), this.headline),
      this.note,
      this.plot.root,
    );
    this.root.hidden = true;
  }

  show(data: PanelData, span: Span, range: string, from_s: number): void {
    const found = data.names.length > 0;
    this.root.hidden = !found && this.panel.empty === undefined;
    this.plot.root.hidden = !found;
    this.note.textContent = found ? "" : (this.panel.empty ?? "");
    const query = expressionOf(this.panel.queries[0]?.expression ?? "", span);
    this.link.href = writeState({ ...DEFAULT_STATE, query, range, refresh: "5s" });
    const last = data.values.map(lastValue).filter((cell) => typeof cell === "number");
    this.headline.textContent = last.length > 0 ? formatValue(this.panel.headline(last), this.panel.unit) : "";
    if (found) this.plot.show({ ...data, unit: this.panel.unit, from_s, to_s: span.end_s });
  }

  fail(error: ApiError): void {
    this.root.hidden = false;
    this.plot.root.hidden = true;
    this.headline.textContent = "";
    this.note.textContent = `${error.kind}: ${error.message}`;
  }

  destroy(): void {
    this.plot.destroy();
  }
}

/** The time of the first value of any panel, or null. */
function firstTime(panels: PanelData[]): number | null {
  const times = panels.flatMap(({ times, values }) =>
    values.flatMap((column) => times[column.findIndex((cell) => typeof cell === "number")] ?? []),
  );
  return times.length > 0 ? Math.min(...times) : null;
}

function emptyState(): HTMLElement {
  const write = `curl -i '${location.origin}/write' --data-binary 'room,name=kitchen temperature=21.5'`;
  const link = writeState({ ...DEFAULT_STATE, query: "room_temperature", range: "5m" });
  return element(
    "section",
    { class: "card empty", attributes: { id: "empty" } },
    element("h2", { text: "No host metrics yet" }),
    element("p", {
      text:
        "Some seconds after its start the server writes this machine's CPU, memory, load, disk and network here, " +
        "unless it was started with --no-host-metrics. Plots appear by themselves.",
    }),
    element("p", { text: "Your own data needs no setup. Write a first point:" }),
    element("pre", { text: write, attributes: { tabindex: "0", "aria-label": "Command that writes a point" } }),
    element("p", {}, "Then look at it: ", element("a", { text: "room_temperature", attributes: { href: link } })),
  );
}

export class HomeView implements View {
  readonly root = element("div", { class: "home" });
  private readonly cards = PANELS.map((panel) => new Card(panel));
  private readonly empty = emptyState();
  private readonly alert = element("p", { class: "error", attributes: { role: "alert" } });
  private readonly updated = element("span", { class: "muted" });
  private readonly range: Segmented;
  private readonly cancel = new AbortController();
  private readonly wake = (): void => void (document.hidden || this.refresh());
  private rangeText = "15m";
  private timer = 0;
  private turn = 0;

  constructor() {
    this.range = new Segmented("Time range", RANGES, (value) => (location.hash = `#/?range=${value}`));
    const grid = element("div", { class: "grid" }, ...this.cards.map((card) => card.root));
    const title = element("div", {}, element("h1", { text: "This machine" }), this.updated);
    this.empty.hidden = true;
    this.alert.hidden = true;
    this.root.append(element("div", { class: "bar" }, title, this.range.root), this.alert, this.empty, grid);
    document.addEventListener("visibilitychange", this.wake);
  }

  update(parameters: URLSearchParams): void {
    const wanted = parameters.get("range");
    this.rangeText = RANGES.find(([value]) => value === wanted)?.[0] ?? "15m";
    this.range.value = this.rangeText;
    void this.refresh();
  }

  destroy(): void {
    clearTimeout(this.timer);
    this.turn += 1;
    this.cancel.abort();
    document.removeEventListener("visibilitychange", this.wake);
    for (const card of this.cards) card.destroy();
  }

  /** Fetches and draws all panels, then comes again; a newer turn takes over from an older. */
  private async refresh(): Promise<void> {
    clearTimeout(this.timer);
    this.turn += 1;
    const turn = this.turn;
    const span = spanOf(this.rangeText);
    const results = await Promise.allSettled(PANELS.map((panel) => fetchPanel(panel, span, this.cancel.signal)));
    if (turn !== this.turn) return;
    this.draw(results, span);
    if (!document.hidden) this.timer = window.setTimeout(() => void this.refresh(), REFRESH_MS);
  }

  private draw(results: PromiseSettledResult<PanelData>[], span: Span): void {
    const found = results.flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));
    const from_s = this.startOf(firstTime(found), span);
    const unreachable = results.find((result) => result.status === "rejected" && kindOf(result.reason) === "unreachable");
    this.alert.hidden = unreachable === undefined;
    if (unreachable?.status === "rejected") {
      this.alert.textContent = `${(unreachable.reason as Error).message} Trying again.`;
      return;
    }
    const nothing = found.length === results.length && found.every((data) => data.names.length === 0);
    this.empty.hidden = !nothing;
    for (const [index, card] of this.cards.entries()) {
      const result = results[index];
      if (nothing) card.root.hidden = true;
      else if (result?.status === "fulfilled") card.show(result.value, span, this.rangeText, from_s);
      else if (result && !isAbort(result.reason)) card.fail(asApiError(result.reason));
    }
    this.updated.textContent = nothing ? "Waiting for data" : `Live, updated ${formatClock(new Date(), true)}`;
    this.root.dataset["state"] = nothing ? "empty" : "live";
  }

  /** Plots of a database that is younger than the range begin with its data, so that it does not stick to the edge. */
  private startOf(first_s: number | null, span: Span): number {
    const earliest = Math.min(first_s ?? span.start_s, span.end_s - LENGTH_LEAST_S);
    return Math.max(span.start_s, earliest);
  }
}

function kindOf(reason: unknown): string {
  return reason instanceof ApiError ? reason.kind : "";
}

function asApiError(reason: unknown): ApiError {
  return reason instanceof ApiError ? reason : new ApiError("page", String(reason));
}
