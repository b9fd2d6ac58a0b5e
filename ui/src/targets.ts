// What the server scrapes: targets by job, with their states and last errors; and what discovery found, before and after relabelling.

import { type DiscoveredTargets, discoveredTargets, type ScrapeTarget, targets, type Targets } from "./api.ts";
import { ago, type Group, labelsOf, ListView, milliseconds, type Row } from "./list_view.ts";

const NOTHING = "Nothing is scraped: the server runs no prometheus.yml (thalweg serve --prometheus FILE).";

const STATES = [
  ["", "All states"],
  ["up", "Up"],
  ["down", "Down"],
  ["unknown", "Not scraped yet"],
] as const;

function targetRow(target: ScrapeTarget): Row {
  const { scrapeUrl, health, labels, lastScrape, lastScrapeDuration, lastError } = target;
  const cells = [scrapeUrl, health, labelsOf(labels), ago(lastScrape), milliseconds(lastScrapeDuration), lastError];
  return { cells, text: `${scrapeUrl} ${labelsOf(labels)} ${lastError}`, state: health };
}

function poolsOf(data: Targets): string[] {
  const { activeTargets, droppedTargetCounts } = data;
  return [...new Set([...Object.keys(droppedTargetCounts), ...activeTargets.map(({ scrapePool }) => scrapePool)])].sort();
}

function targetGroups(data: Targets): Group[] {
  return poolsOf(data).map((pool) => {
    const own = data.activeTargets.filter(({ scrapePool }) => scrapePool === pool);
    const up = own.filter(({ health }) => health === "up").length;
    const dropped = data.droppedTargetCounts[pool] ?? 0;
    return {
      title: `${pool}: ${up} of ${own.length} up${dropped > 0 ? `, ${dropped} dropped` : ""}`,
      errors: data.scrapePoolErrors?.[pool] ?? [],
      heads: ["Address", "State", "Labels", "Last scrape", "Duration", "Error"],
      rows: own.map(targetRow),
    };
  });
}

export const targetsView = (): ListView<Targets> =>
  new ListView({
    title: "Targets",
    filtered: "address, label or error",
    states: STATES,
    load: targets,
    groups: targetGroups,
    nothing: NOTHING,
  });

function discoveryGroups(data: DiscoveredTargets): Group[] {
  return poolsOf(data).map((pool) => {
    const active = data.activeTargets.filter(({ scrapePool }) => scrapePool === pool);
    const dropped = data.droppedTargets.filter(({ scrapePool }) => scrapePool === pool);
    const row = (before: string, after: string, state: string): Row => ({
      cells: [before, after === "" ? "dropped" : after],
      text: `${before} ${after}`,
      state,
    });
    const rows = active.map(({ discoveredLabels, labels }) => row(labelsOf(discoveredLabels), labelsOf(labels), "active"));
    rows.push(...dropped.map(({ discoveredLabels }) => row(labelsOf(discoveredLabels), "", "dropped")));
    const all = active.length + (data.droppedTargetCounts[pool] ?? 0);
    return {
      title: `${pool}: ${active.length} of ${all} are scraped`,
      errors: data.scrapePoolErrors?.[pool] ?? [],
      heads: ["Labels as discovered", "Labels of the target"],
      rows,
    };
  });
}

export const discoveryView = (): ListView<DiscoveredTargets> =>
  new ListView({
    title: "Service discovery",
    filtered: "label",
    states: [
      ["", "All"],
      ["active", "Scraped"],
      ["dropped", "Dropped by relabelling"],
    ],
    load: discoveredTargets,
    groups: discoveryGroups,
    nothing: NOTHING,
  });
