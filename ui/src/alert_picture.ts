// A picture of an alert's expression: the last hour of what is compared, and the line that it is compared with.

import { parser } from "@prometheus-io/lezer-promql";
import { alignToGrid } from "./align.ts";
import { isAbort, queryRange } from "./api.ts";
import { element } from "./dom.ts";
import { seriesName, unitOf } from "./format.ts";
import { Plot } from "./plot.ts";
import { chooseStep } from "./state.ts";

const LENGTH_S = 3600;
const POINTS = 240;
const REFRESH_MS = 30_000;
const HEIGHT_PX = 140;
/** Series that are drawn; the others stand in the legend. */
const DRAWN_MAX = 20;

/** What is drawn of an alert, and the number that it is compared with, if it is one. */
export interface Condition {
  query: string;
  threshold: number | null;
}

/** Where an expression is a comparison with a number, its left side: the whole has gaps wherever nothing is wrong. */
export function conditionOf(query: string): Condition {
  const whole = { query, threshold: null };
  const top = parser.parse(query).topNode.firstChild;
  const left = top?.firstChild;
  const right = top?.lastChild;
  if (top?.name !== "BinaryExpr" || !left || !right) return whole;
  const isComparison = /^\s*(>=|<=|==|!=|>|<)\s*$/.test(query.slice(left.to, right.from));
  const number = query.slice(right.from, right.to).trim();
  const threshold = number === "" ? NaN : Number(number);
  return isComparison && Number.isFinite(threshold) ? { query: query.slice(left.from, left.to), threshold } : whole;
}

/** Loads what it shows when it is opened, and again while it is open. */
export class AlertPicture {
  readonly root: HTMLDetailsElement;
  private readonly condition: Condition;
  private readonly plot: Plot;
  private readonly note = element("p", { class: "card-note" });
  private readonly abort = new AbortController();
  private timer: number | undefined;

  constructor(title: string, query: string, isOpen: boolean) {
    this.condition = conditionOf(query);
    this.plot = new Plot({ title, height_px: HEIGHT_PX });
    const summary = element("summary", { text: "Plot of the last hour" });
    this.root = element("details", { class: "picture" }, summary, this.plot.root, this.note);
    this.root.addEventListener("toggle", () => this.follow());
    this.root.open = isOpen;
  }

  destroy(): void {
    clearInterval(this.timer);
    this.abort.abort();
    this.plot.destroy();
  }

  private follow(): void {
    clearInterval(this.timer);
    if (!this.root.open || this.abort.signal.aborted) return;
    this.timer = window.setInterval(() => this.load(), REFRESH_MS);
    this.load();
  }

  private load(): void {
    const step_s = chooseStep(LENGTH_S, POINTS);
    const end_s = Math.floor(Date.now() / 1000 / step_s) * step_s;
    const span = { start_s: end_s - LENGTH_S, end_s, step_s };
    queryRange({ query: this.condition.query, ...span }, this.abort.signal)
      .then(({ data }) => {
        if (data.resultType !== "matrix") return;
        const { times, values } = alignToGrid(data.result, span.start_s, span.end_s, step_s);
        const names = data.result.map((item) => seriesName(item.metric));
        const { threshold } = this.condition;
        if (threshold !== null) {
          names.push(`compared with ${threshold}`);
          values.push(times.map(() => threshold));
        }
        this.note.textContent = data.result.length === 0 ? "Nothing in the last hour." : "";
        const unit = unitOf(this.condition.query);
        this.plot.show({ times, values, names, unit, from_s: span.start_s, to_s: end_s, drawn: DRAWN_MAX });
      })
      .catch((error: unknown) => {
        if (!isAbort(error)) this.note.textContent = String(error instanceof Error ? error.message : error);
      });
  }
}

/** The pictures of all alerts, kept while the list around them is drawn again. */
export class AlertPictures {
  private readonly known = new Map<string, AlertPicture>();

  of(name: string, query: string, isOpen: boolean): HTMLElement {
    const key = `${name}\n${query}`;
    let picture = this.known.get(key);
    if (!picture) {
      picture = new AlertPicture(name, query, isOpen);
      this.known.set(key, picture);
    }
    return picture.root;
  }

  destroy(): void {
    for (const picture of this.known.values()) picture.destroy();
  }
}
