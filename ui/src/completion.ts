// What the editor's completion asks the server: metric names, labels and values, remembered for a short time.

import type { PrometheusClient } from "@prometheus-io/codemirror-promql";
import { EqlRegex, EqlSingle, Neq, NeqRegex } from "@prometheus-io/lezer-promql";
import { labelNames, labelValues, metadata, series, type Labels, type Scope } from "./api.ts";

type Matchers = NonNullable<Parameters<PrometheusClient["series"]>[1]>;

const REMEMBER_MS = 30_000;
const LOOKBACK_S = 12 * 3600;

const OPERATORS = new Map<number, string>([
  [EqlSingle, "="],
  [Neq, "!="],
  [EqlRegex, "=~"],
  [NeqRegex, "!~"],
]);

/** The label being completed is left out: its matcher is only half typed. */
function selector(metricName: string, matchers: Matchers, completed?: string): string {
  const parts = matchers
    .filter((matcher) => matcher.name !== completed && matcher.value !== "")
    .map((matcher) => `${matcher.name}${OPERATORS.get(matcher.type) ?? "="}${JSON.stringify(matcher.value)}`);
  return metricName || parts.length > 0 ? `${metricName}{${parts.join(",")}}` : "";
}

export class CompletionClient implements PrometheusClient {
  private readonly answers = new Map<string, { promise: Promise<unknown>; until_ms: number }>();

  labelNames(metricName = ""): Promise<string[]> {
    const scope = this.scope(selector(metricName, []));
    return this.remembered(`names ${scope.match}`, [], async () => (await labelNames(scope)).data);
  }

  labelValues(labelName: string, metricName = "", matchers: Matchers = []): Promise<string[]> {
    const scope = this.scope(selector(metricName, matchers, labelName));
    return this.remembered(`values ${labelName} ${scope.match}`, [], async () => (await labelValues(labelName, scope)).data);
  }

  metricNames(): Promise<string[]> {
    return this.labelValues("__name__");
  }

  metricMetadata(): Promise<Awaited<ReturnType<PrometheusClient["metricMetadata"]>>> {
    return this.remembered("metadata", {}, async () => (await metadata()).data);
  }

  series(metricName: string, matchers: Matchers = [], labelName?: string): Promise<Map<string, string>[]> {
    const scope = this.scope(selector(metricName, matchers, labelName));
    const asMaps = (found: Labels[]): Map<string, string>[] => found.map((labels) => new Map(Object.entries(labels)));
    return this.remembered(`series ${scope.match}`, [], async () => asMaps((await series(scope)).data));
  }

  /** Server flags, which Prometheus uses to find its lookback; completion works without. */
  flags(): Promise<Record<string, string>> {
    return Promise.resolve({});
  }

  private scope(match: string): Scope {
    return { match, start_s: Math.floor(Date.now() / 1000) - LOOKBACK_S };
  }

  /** Completion is a help, so a failure shows nothing: the query itself will say what is wrong. */
  private remembered<T>(key: string, none: T, ask: () => Promise<T>): Promise<T> {
    const known = this.answers.get(key);
    if (known && known.until_ms > Date.now()) return known.promise as Promise<T>;
    const promise = ask().catch(() => {
      this.answers.delete(key);
      return none;
    });
    this.answers.set(key, { promise, until_ms: Date.now() + REMEMBER_MS });
    return promise;
  }
}
