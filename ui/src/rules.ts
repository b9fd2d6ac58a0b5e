// The rules that the server evaluates, by group, and the alerts that they give.

import { AlertPictures } from "./alert_picture.ts";
import { type Alert, type Rule, type RuleGroup, rules, type RuleGroups } from "./api.ts";
import { ago, expression, type Group, labelsOf, ListView, milliseconds, type Row } from "./list_view.ts";

const NOTHING = "There are no rules: the server's prometheus.yml has no rule_files, or it runs none (thalweg serve --prometheus FILE).";

function kindOf(rule: Rule): string {
  if (rule.type === "alerting") return `alert, ${rule.state ?? "inactive"}`;
  if (!rule.materialized) return "record";
  const pending = rule.materialized.pending.length;
  return `record, kept right${pending > 0 ? ` (${pending} pending)` : ""}`;
}

function ruleRow(rule: Rule): Row {
  const error = rule.lastError ?? rule.materialized?.lastError ?? "";
  const cells = [
    rule.name,
    kindOf(rule),
    expression(rule.query),
    labelsOf(rule.labels ?? {}),
    rule.health,
    ago(rule.lastEvaluation),
    milliseconds(rule.evaluationTime),
    error,
  ];
  return { cells, text: `${rule.name} ${rule.query} ${labelsOf(rule.labels ?? {})} ${error}`, state: rule.health };
}

function ruleGroup(group: RuleGroup): Group {
  const { name, file, interval, lastEvaluation, evaluationTime } = group;
  return {
    title: `${name} (${file}): every ${interval} s, last ${ago(lastEvaluation)} in ${milliseconds(evaluationTime)}`,
    errors: [],
    heads: ["Name", "Kind", "Expression", "Labels", "Health", "Last evaluation", "Duration", "Error"],
    rows: group.rules.map(ruleRow),
  };
}

export const rulesView = (): ListView<RuleGroups> =>
  new ListView({
    title: "Rules",
    filtered: "name, expression, label or error",
    states: [
      ["", "All"],
      ["ok", "Well"],
      ["err", "Failed"],
      ["unknown", "Not evaluated yet"],
    ],
    load: (signal) => rules("", signal),
    groups: ({ groups }) => groups.map(ruleGroup),
    nothing: NOTHING,
  });

function alertRow(rule: Rule, alert: Alert): Row {
  const labels = labelsOf(alert.labels);
  const annotations = labelsOf(alert.annotations);
  const cells = [labels, alert.state, ago(alert.activeAt), alert.value, annotations, expression(rule.query)];
  return { cells, text: `${rule.name} ${labels} ${annotations}`, state: alert.state };
}

/** So many alerts that are active have an open picture; others open when asked to. */
const OPEN_MAX = 5;

function alertGroup(rule: Rule, place: number, pictures: AlertPictures): Group {
  const alerts = rule.alerts ?? [];
  const inactive: Row = {
    cells: ["", "inactive", "", "", "", expression(rule.query)],
    text: `${rule.name} ${rule.query}`,
    state: "inactive",
  };
  return {
    title: `${rule.name}: ${rule.state ?? "inactive"}${alerts.length > 0 ? `, ${alerts.length} alerts` : ""}`,
    errors: rule.lastError ? [rule.lastError] : [],
    heads: ["Labels", "State", "Since", "Value", "Annotations", "Expression"],
    rows: alerts.length > 0 ? alerts.map((alert) => alertRow(rule, alert)) : [inactive],
    picture: pictures.of(rule.name, rule.query, alerts.length > 0 && place < OPEN_MAX),
  };
}

/** Firing ones first. */
const RANKS: Record<string, number> = { firing: 0, pending: 1 };

function alertGroups({ groups }: RuleGroups, pictures: AlertPictures): Group[] {
  const all = groups.flatMap((group) => group.rules);
  const rank = (rule: Rule): number => RANKS[rule.state ?? ""] ?? 2;
  return all.sort((a, b) => rank(a) - rank(b)).map((rule, place) => alertGroup(rule, place, pictures));
}

export function alertsView(): ListView<RuleGroups> {
  const pictures = new AlertPictures();
  return new ListView({
    title: "Alerts",
    filtered: "name, label or annotation",
    states: [
      ["", "All states"],
      ["firing", "Firing"],
      ["pending", "Pending"],
      ["inactive", "Inactive"],
    ],
    load: (signal) => rules("alert", signal),
    groups: (data) => alertGroups(data, pictures),
    nothing: NOTHING,
    destroyed: () => pictures.destroy(),
  });
}
