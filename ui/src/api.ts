// The server's Prometheus HTTP API, from the page's own origin.
// https://prometheus.io/docs/prometheus/latest/querying/api/

import { chosenDatabase, DEFAULT_DATABASE } from "./database.ts";
import { PAGE_HEADER } from "./sign_in.ts";

export type Labels = Record<string, string>;
/** Seconds since 1970 and the value as text, since JSON has no NaN or infinity. */
export type Point = [number, string];

export interface Histogram {
  count: string;
  sum: string;
}

export interface VectorItem {
  metric: Labels;
  value?: Point;
  histogram?: [number, Histogram];
}

export interface MatrixItem {
  metric: Labels;
  values?: Point[];
  histograms?: [number, Histogram][];
}

export type QueryData =
  | { resultType: "vector"; result: VectorItem[] }
  | { resultType: "matrix"; result: MatrixItem[] }
  | { resultType: "scalar"; result: Point }
  | { resultType: "string"; result: Point };

export interface Answer<T> {
  data: T;
  warnings: string[];
  infos: string[];
  elapsed_ms: number;
}

interface Envelope {
  status: "success" | "error";
  data?: unknown;
  errorType?: string;
  error?: string;
  warnings?: string[];
  infos?: string[];
}

/** What the server answered instead of data, in its own words. */
export class ApiError extends Error {
  constructor(
    readonly kind: string,
    message: string,
    readonly warnings: string[] = [],
  ) {
    super(message);
  }
}

const TIMEOUT_MS = 120_000;

/** True when a request was given up on purpose, so that nobody needs to hear of it. */
export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

function readEnvelope(text: string, response: Response): Envelope {
  try {
    const parsed: unknown = JSON.parse(text);
    if (typeof parsed === "object" && parsed !== null && "status" in parsed) return parsed as Envelope;
  } catch {
    // Not JSON: a proxy's error page, say. Reported below with what it says.
  }
  const detail = text.trim().slice(0, 300) || response.statusText;
  throw new ApiError(`HTTP ${response.status}`, detail || "The answer is not JSON in Prometheus's shape.");
}

async function request<T>(path: string, form: URLSearchParams, post: boolean, signal?: AbortSignal): Promise<Answer<T>> {
  const started = performance.now();
  const database = chosenDatabase();
  if (database !== DEFAULT_DATABASE && !form.has("db")) form.set("db", database);
  const query = !post && form.size > 0 ? `?${form}` : "";
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  let response: Response;
  let text: string;
  try {
    response = await fetch(`api/v1/${path}${query}`, {
      method: post ? "POST" : "GET",
      headers: PAGE_HEADER,
      body: post ? form : null,
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
    });
    text = await response.text();
  } catch (error) {
    if (isAbort(error)) throw error;
    if (timeout.aborted) throw new ApiError("timeout", `No answer within ${TIMEOUT_MS / 1000} s.`);
    throw new ApiError("unreachable", `The server at ${location.origin} does not answer. Is it running?`);
  }
  const envelope = readEnvelope(text, response);
  if (envelope.status !== "success") {
    throw new ApiError(envelope.errorType ?? `HTTP ${response.status}`, envelope.error ?? "", envelope.warnings);
  }
  return {
    data: envelope.data as T,
    warnings: envelope.warnings ?? [],
    infos: envelope.infos ?? [],
    elapsed_ms: performance.now() - started,
  };
}

/** Times are seconds since 1970. */
export function queryInstant(query: string, time_s: number, signal?: AbortSignal): Promise<Answer<QueryData>> {
  return request("query", new URLSearchParams({ query, time: time_s.toFixed(3) }), true, signal);
}

export interface RangeRequest {
  query: string;
  start_s: number;
  end_s: number;
  step_s: number;
}

export function queryRange(range: RangeRequest, signal?: AbortSignal): Promise<Answer<QueryData>> {
  const form = new URLSearchParams({
    query: range.query,
    start: range.start_s.toFixed(3),
    end: range.end_s.toFixed(3),
    step: String(range.step_s),
  });
  return request("query_range", form, true, signal);
}

/** A stretch of a series that is like another. */
export interface Place {
  rank: number;
  metric: Labels;
  /** Seconds since 1970. */
  start: number;
  end: number;
  distance: number;
  correlation: number | null;
}

export interface Places {
  resultType: "places";
  result: Place[];
}

export interface SimilarRequest {
  /** Selects the series that are compared with the reference, which is one series. */
  match: string;
  reference: string;
  start_s: number;
  end_s: number;
  step_s: number;
  count: number;
}

export function similar(wanted: SimilarRequest, signal?: AbortSignal): Promise<Answer<Places>> {
  const form = new URLSearchParams({
    "match[]": wanted.match,
    reference: wanted.reference,
    start: wanted.start_s.toFixed(3),
    end: wanted.end_s.toFixed(3),
    step: String(wanted.step_s),
    k: String(wanted.count),
  });
  return request("similar", form, true, signal);
}

/** `version` is the Prometheus version whose API this is; `applicationVersion` is Thalweg's own. */
export function buildInfo(): Promise<Answer<{ version?: string; applicationVersion?: string }>> {
  return request("status/buildinfo", new URLSearchParams(), false);
}

export function databases(): Promise<Answer<{ name: string }[]>> {
  return request("admin/databases", new URLSearchParams(), false);
}

export function metadata(): Promise<Answer<Record<string, { type: string; help: string; unit: string }[]>>> {
  return request("metadata", new URLSearchParams(), false);
}

/** A target as Prometheus's API has it. */
export interface ScrapeTarget {
  discoveredLabels: Labels;
  labels: Labels;
  scrapePool: string;
  scrapeUrl: string;
  lastError: string;
  lastScrape: string;
  /** Seconds. */
  lastScrapeDuration: number;
  health: "up" | "down" | "unknown";
}

export interface Targets {
  activeTargets: ScrapeTarget[];
  droppedTargetCounts: Record<string, number>;
  /** Why jobs do not run, or lack targets. */
  scrapePoolErrors?: Record<string, string[]>;
}

export function targets(signal?: AbortSignal): Promise<Answer<Targets>> {
  return request("targets", new URLSearchParams({ state: "active" }), false, signal);
}

/** With those that relabelling dropped. */
export interface DiscoveredTargets extends Targets {
  droppedTargets: { discoveredLabels: Labels; scrapePool: string }[];
}

export function discoveredTargets(signal?: AbortSignal): Promise<Answer<DiscoveredTargets>> {
  return request("targets", new URLSearchParams({ state: "any" }), false, signal);
}

export interface Alert {
  labels: Labels;
  annotations: Labels;
  state: "pending" | "firing" | "inactive";
  activeAt: string;
  value: string;
}

/** A rule as Prometheus's API has it. */
export interface Rule {
  name: string;
  query: string;
  labels?: Labels;
  health: "ok" | "err" | "unknown";
  lastError?: string;
  lastEvaluation: string;
  /** Seconds. */
  evaluationTime: number;
  type: "alerting" | "recording";
  state?: "firing" | "pending" | "inactive";
  alerts?: Alert[];
  /** Of a recording rule whose results are kept right for the past, too. */
  materialized?: {
    pending: { start: string; end: string }[];
    lastError: string | null;
    /** Since the server's start. */
    samplesWritten: number;
    refused: number;
    /** Seconds of a core. */
    cpuTime: number;
  };
}

export interface RuleGroup {
  name: string;
  file: string;
  /** Seconds. */
  interval: number;
  lastEvaluation: string;
  /** Seconds. */
  evaluationTime: number;
  rules: Rule[];
}

export interface RuleGroups {
  groups: RuleGroup[];
}

/** `type`: `alert` or `record`; empty: both. */
export function rules(type: string, signal?: AbortSignal): Promise<Answer<RuleGroups>> {
  return request("rules", new URLSearchParams(type === "" ? {} : { type }), false, signal);
}

/** A materialised view; of one whose definition cannot be read there are the name, the database, the state and the error. */
export interface MaterializedView {
  name: string;
  database: string;
  state: "valid" | "refreshing" | "failing";
  error: string | null;
  source?: string;
  target?: string;
  dialect?: string;
  /** Where the windows end that are stored, at the latest. */
  lag_s?: number;
  pending?: { start_ns: number; end_ns: number; never_computed: boolean }[];
  refreshed_ns?: number | null;
  /** Since the server's start. */
  rows_written?: number;
  refreshes?: number;
  elapsed_s?: number;
  cpu_s?: number;
  late_samples_refused?: number;
  /** Where they were counted. */
  rows?: number | null;
}

export interface MaterializedViews {
  views: MaterializedView[];
}

/** Counting stored rows reads their summaries: not for every reload of a list. */
export function materializedViews(countsRows: boolean, signal?: AbortSignal): Promise<Answer<MaterializedViews>> {
  return request("views", new URLSearchParams(countsRows ? { rows: "1" } : {}), false, signal);
}

/** `match` is a selector such as `up{job="x"}`; only series it selects are looked at. */
export interface Scope {
  match?: string;
  start_s?: number;
  /** Another database than the one that the page asks. */
  database?: string;
  limit?: number;
}

function scopeForm(scope: Scope): URLSearchParams {
  const form = new URLSearchParams();
  if (scope.match) form.set("match[]", scope.match);
  if (scope.start_s !== undefined) form.set("start", String(scope.start_s));
  if (scope.database !== undefined) form.set("db", scope.database);
  if (scope.limit !== undefined) form.set("limit", String(scope.limit));
  return form;
}

export function labelNames(scope: Scope = {}): Promise<Answer<string[]>> {
  return request("labels", scopeForm(scope), false);
}

export function labelValues(name: string, scope: Scope = {}, signal?: AbortSignal): Promise<Answer<string[]>> {
  return request(`label/${encodeURIComponent(name)}/values`, scopeForm(scope), false, signal);
}

export function series(scope: Scope): Promise<Answer<Labels[]>> {
  return request("series", scopeForm(scope), false);
}
