// What the Explore view shows, as the part of the address after `#`: a link shows the same view again.

import { parseDuration } from "./format.ts";

export type Mode = "range" | "instant";

export interface ExploreState {
  query: string;
  mode: Mode;
  /** Length of a range that ends now, such as `1h`; not used where from and to are set. */
  range: string;
  /** Seconds since 1970. Both or none are set. */
  from_s: number | null;
  to_s: number | null;
  /** Such as `15s`; empty means that a step is chosen by the plot's width. */
  step: string;
  /** Such as `15s`; `off` for none. */
  refresh: string;
  /** The selector of a series: what is drawn is like it. Empty: what the query gives. */
  like: string;
}

export const RANGES = [
  ["5m", "Last 5 minutes"],
  ["15m", "Last 15 minutes"],
  ["30m", "Last 30 minutes"],
  ["1h", "Last hour"],
  ["3h", "Last 3 hours"],
  ["6h", "Last 6 hours"],
  ["12h", "Last 12 hours"],
  ["24h", "Last 24 hours"],
  ["2d", "Last 2 days"],
  ["7d", "Last 7 days"],
  ["30d", "Last 30 days"],
] as const;

export const REFRESHES = [
  ["off", "Off"],
  ["5s", "Every 5 s"],
  ["15s", "Every 15 s"],
  ["1m", "Every minute"],
] as const;

export const DEFAULT_STATE: Readonly<ExploreState> = {
  query: "",
  mode: "range",
  range: "15m",
  from_s: null,
  to_s: null,
  step: "",
  refresh: "off",
  like: "",
};

function timeOf(text: string | null): number | null {
  if (text === null) return null;
  const time_ms = Date.parse(text);
  return Number.isFinite(time_ms) ? time_ms / 1000 : null;
}

/** Reads `q=…&mode=…&range=…`. What is missing or makes no sense takes its default. */
export function parseState(parameters: URLSearchParams): ExploreState {
  const from_s = timeOf(parameters.get("from"));
  const to_s = timeOf(parameters.get("to"));
  const whole = from_s !== null && to_s !== null && from_s < to_s;
  const range = parameters.get("range") ?? "";
  const step = parameters.get("step") ?? "";
  const refresh = parameters.get("refresh") ?? "";
  return {
    query: parameters.get("q") ?? "",
    mode: parameters.get("mode") === "instant" ? "instant" : "range",
    range: parseDuration(range) === null ? DEFAULT_STATE.range : range,
    from_s: whole ? from_s : null,
    to_s: whole ? to_s : null,
    step: parseDuration(step) === null ? "" : step,
    refresh: REFRESHES.some(([value]) => value === refresh) ? refresh : DEFAULT_STATE.refresh,
    like: parameters.get("like") ?? "",
  };
}

/** The inverse of `parseState`; defaults are left out. */
export function writeState(state: ExploreState): string {
  const parameters = new URLSearchParams();
  if (state.query) parameters.set("q", state.query);
  if (state.mode !== DEFAULT_STATE.mode) parameters.set("mode", state.mode);
  if (state.from_s !== null && state.to_s !== null) {
    parameters.set("from", new Date(state.from_s * 1000).toISOString());
    parameters.set("to", new Date(state.to_s * 1000).toISOString());
  } else {
    parameters.set("range", state.range);
  }
  if (state.step) parameters.set("step", state.step);
  if (state.refresh !== DEFAULT_STATE.refresh) parameters.set("refresh", state.refresh);
  if (state.like) parameters.set("like", state.like);
  return `#/explore?${parameters}`;
}

const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400];
/** Prometheus refuses more points per series than this. */
const POINTS_MAX = 11_000;

/** The smallest round step that gives at most `points` points over `length_s`. */
export function chooseStep(length_s: number, points: number): number {
  const wanted = length_s / Math.max(1, Math.min(points, POINTS_MAX));
  return STEPS_S.find((step) => step >= wanted) ?? Math.ceil(wanted);
}
