// What the server scrapes: targets by job, with their states and last errors.

import { isAbort, type Labels, type ScrapeTarget, targets, type Targets } from "./api.ts";
import { element, select } from "./dom.ts";
import type { View } from "./view.ts";

const REFRESH_MS = 5000;
/** Rows of one job that are drawn. */
const ROWS_MAX = 500;

const STATES = [
  ["", "All states"],
  ["up", "Up"],
  ["down", "Down"],
  ["unknown", "Not scraped yet"],
] as const;

const labelsOf = (labels: Labels): string =>
  Object.entries(labels)
    .map(([name, value]) => `${name}="${value}"`)
    .join(", ");

function ago(time: string): string {
  const seconds = (Date.now() - Date.parse(time)) / 1000;
  // Go's zero time stands for never.
  return seconds > 1e9 ? "never" : `${Math.max(0, seconds).toFixed(1)} s ago`;
}

function row(target: ScrapeTarget): HTMLTableRowElement {
  const cells = [target.scrapeUrl, target.health, labelsOf(target.labels), ago(target.lastScrape)];
  const duration = `${(target.lastScrapeDuration * 1000).toFixed(1)} ms`;
  return element(
    "tr",
    {},
    ...[...cells, duration, target.lastError].map((text) => element("td", { text })),
  );
}

export class TargetsView implements View {
  readonly root: HTMLElement;
  private readonly list = element("div");
  private readonly filter: HTMLInputElement;
  private readonly state: HTMLSelectElement;
  private readonly abort = new AbortController();
  private readonly timer: number;
  private found: Targets | null = null;

  constructor() {
    this.filter = element("input", {
      attributes: { type: "search", placeholder: "address, label or error", "aria-label": "Filter" },
      on: { input: () => this.draw() },
    });
    const { field, input } = select("State", STATES, () => this.draw());
    this.state = input;
    this.root = element("section", {}, element("h1", { text: "Targets" }), field, this.filter, this.list);
    this.timer = window.setInterval(() => this.load(), REFRESH_MS);
    this.load();
  }

  update(): void {
    this.draw();
  }

  destroy(): void {
    clearInterval(this.timer);
    this.abort.abort();
  }

  private load(): void {
    targets(this.abort.signal)
      .then(({ data }) => {
        this.found = data;
        this.draw();
      })
      .catch((error: unknown) => {
        if (isAbort(error)) return;
        const text = String(error instanceof Error ? error.message : error);
        this.list.replaceChildren(element("p", { class: "error", text, attributes: { role: "alert" } }));
      });
  }

  private isWanted(target: ScrapeTarget): boolean {
    const wanted = this.filter.value.trim().toLowerCase();
    const text = `${target.scrapeUrl} ${labelsOf(target.labels)} ${target.lastError}`.toLowerCase();
    return text.includes(wanted) && (this.state.value === "" || this.state.value === target.health);
  }

  private draw(): void {
    if (!this.found) return;
    const { activeTargets, droppedTargetCounts, scrapePoolErrors = {} } = this.found;
    const pools = [...new Set([...Object.keys(droppedTargetCounts), ...activeTargets.map(({ scrapePool }) => scrapePool)])];
    if (pools.length === 0) {
      const text = "Nothing is scraped: the server runs no prometheus.yml (thalweg serve --prometheus FILE).";
      this.list.replaceChildren(element("p", { class: "card-note", text }));
      return;
    }
    this.list.replaceChildren(...pools.sort().map((pool) => this.pool(pool, activeTargets, scrapePoolErrors[pool] ?? [])));
  }

  private pool(pool: string, all: ScrapeTarget[], errors: string[]): HTMLElement {
    const own = all.filter(({ scrapePool }) => scrapePool === pool);
    const up = own.filter(({ health }) => health === "up").length;
    const dropped = this.found?.droppedTargetCounts[pool] ?? 0;
    const title = `${pool}: ${up} of ${own.length} up${dropped > 0 ? `, ${dropped} dropped` : ""}`;
    const shown = own.filter((target) => this.isWanted(target));
    const heads = ["Address", "State", "Labels", "Last scrape", "Duration", "Error"];
    const table = element(
      "table",
      {},
      element("thead", {}, element("tr", {}, ...heads.map((text) => element("th", { text })))),
      element("tbody", {}, ...shown.slice(0, ROWS_MAX).map(row)),
    );
    return element(
      "section",
      { class: "table" },
      element("h2", { text: title }),
      ...errors.map((text) => element("p", { class: "error", text })),
      shown.length > 0 ? element("div", { class: "table-scroll" }, table) : null,
      shown.length > ROWS_MAX ? element("p", { text: `${shown.length - ROWS_MAX} more: filter them.` }) : null,
    );
  }
}
