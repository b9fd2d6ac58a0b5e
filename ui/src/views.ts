// The materialised views of the database, and the recording rules whose results are kept right as views are, those of stream aggregation among them:
// what they are made of, how far they are, what they hold and cost.

import {
  type Answer,
  type MaterializedView,
  type MaterializedViews,
  materializedViews,
  type Rule,
  type RuleGroup,
  rules,
} from "./api.ts";
import { formatDuration, formatValue } from "./format.ts";
import { ago, expression, type Group, ListView, type Row } from "./list_view.ts";

const NOTHING =
  "This database has no materialised views (CREATE MATERIALIZED VIEW … AS SELECT …), and no recording rules are kept right (--materialize-rules, --stream-aggregation).";

const STATES = [
  ["", "All states"],
  ["valid", "Valid"],
  ["refreshing", "Refreshing"],
  ["failing", "Failing"],
] as const;

/** Rows are counted once in so many loads. */
const LOADS_PER_COUNT = 12;

const NS_PER_MS = 1e6;

const count = (number: number | null | undefined): string =>
  number === null || number === undefined ? "" : number.toLocaleString("en-US");

const duration = (seconds: number | undefined): string =>
  seconds === undefined ? "" : formatDuration(seconds < 1 ? seconds : Math.round(seconds));

function refreshed(ns: number | null | undefined): string {
  return ns === null || ns === undefined ? "not yet" : ago(new Date(ns / NS_PER_MS).toISOString());
}

/** How many ranges of windows are to be computed, and of which none ever was. */
function pending(view: MaterializedView): string {
  const ranges = view.pending ?? [];
  const never = ranges.filter(({ never_computed }) => never_computed).length;
  return ranges.length === 0 ? "none" : `${ranges.length}${never > 0 ? `, ${never} never computed` : ""}`;
}

function viewRow(view: MaterializedView): Row {
  const { name, source = "", target = name, dialect = "", state, error, late_samples_refused: refused = 0 } = view;
  const cells = [
    name,
    source,
    target === name ? dialect : `${dialect}, into ${target}`,
    state,
    pending(view),
    duration(view.lag_s),
    refreshed(view.refreshed_ns),
    count(view.rows),
    count(view.rows_written),
    formatValue(view.cpu_s, "seconds"),
    refused > 0 ? count(refused) : "",
    error ?? "",
  ];
  return { cells, text: `${name} ${source} ${target} ${error ?? ""}`, state };
}

const HEADS = [
  "Name",
  "Source",
  "Dialect",
  "State",
  "Pending ranges",
  "Lag",
  "Refreshed",
  "Rows",
  "Rows written",
  "CPU time",
  "Late samples refused",
  "Error",
];

function viewGroups(data: MaterializedViews): Group[] {
  const databases = [...new Set(data.views.map(({ database }) => database))].sort();
  return databases.map((database) => {
    const own = data.views.filter((view) => view.database === database);
    const failing = own.filter(({ state }) => state === "failing").length;
    const cpu_s = own.reduce((sum, view) => sum + (view.cpu_s ?? 0), 0);
    const views = own.length === 1 ? "1 view" : `${own.length} views`;
    const failed = failing > 0 ? `, ${failing} of them failing` : "";
    return {
      title: `${database}: ${views}${failed}, refreshed with ${formatValue(cpu_s, "seconds")} of CPU time since the start`,
      errors: [],
      heads: HEADS,
      rows: own.map(viewRow),
    };
  });
}

interface Kept extends MaterializedViews {
  groups: RuleGroup[];
}

const RULE_HEADS = [
  "Name",
  "Expression",
  "State",
  "Pending ranges",
  "Last evaluation",
  "Samples written",
  "CPU time",
  "Late samples refused",
  "Error",
];

function ruleRow({ name, query, materialized, lastEvaluation, lastError }: Rule): Row {
  if (!materialized) return { cells: [], text: "", state: "" };
  const { pending, samplesWritten, cpuTime, refused } = materialized;
  const error = materialized.lastError ?? lastError ?? "";
  const state = error !== "" ? "failing" : pending.length > 0 ? "refreshing" : "valid";
  const cells = [
    name,
    expression(query),
    state,
    pending.length === 0 ? "none" : String(pending.length),
    ago(lastEvaluation),
    count(samplesWritten),
    formatValue(cpuTime, "seconds"),
    refused > 0 ? count(refused) : "",
    error,
  ];
  return { cells, text: `${name} ${query} ${error}`, state };
}

/** A group's recording rules whose results are kept right; none if it has no such rules. */
function ruleGroups({ name, file, rules }: RuleGroup): Group[] {
  const kept = rules.filter(({ materialized }) => materialized !== undefined);
  if (kept.length === 0) return [];
  return [{ title: `${name} (${file}): recording rules that stay right`, errors: [], heads: RULE_HEADS, rows: kept.map(ruleRow) }];
}

/** Loads views, with the rows that they had when these were last counted. */
function loader(): (signal: AbortSignal) => Promise<Answer<Kept>> {
  const rows = new Map<string, number>();
  let loads = 0;
  return async (signal) => {
    const [answer, recording] = await Promise.all([
      materializedViews(loads % LOADS_PER_COUNT === 0, signal),
      rules("record", signal),
    ]);
    loads += 1;
    for (const view of answer.data.views) {
      const known = rows.get(view.name);
      if (typeof view.rows === "number") rows.set(view.name, view.rows);
      else if (known !== undefined) view.rows = known;
    }
    return { ...answer, data: { ...answer.data, groups: recording.data.groups } };
  };
}

export const viewsView = (): ListView<Kept> =>
  new ListView({
    title: "Materialised views",
    filtered: "name, source or error",
    states: STATES,
    load: loader(),
    groups: (data) => [...viewGroups(data), ...data.groups.flatMap(ruleGroups)],
    nothing: NOTHING,
  });
