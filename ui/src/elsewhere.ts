// Where the metrics of a query are that finds nothing: a stock Telegraf writes to a database of its own.

import { databases, labelValues } from "./api.ts";
import { chosenDatabase } from "./database.ts";

/** More databases than this are not asked. */
const DATABASES_MAX = 20;
/** Nor are more metrics of one query. */
const METRICS_MAX = 3;

const KEYWORDS = new Set(
  "and or unless bool offset by without on ignoring group_left group_right inf nan start end atan2 anchored smoothed".split(" "),
);

export interface Elsewhere {
  metric: string;
  database: string;
}

/** The names of metrics in a query: words that are neither functions nor labels. */
export function metricsOf(query: string): string[] {
  const bare = query
    .replace(/"[^"]*"|'[^']*'|`[^`]*`/g, "")
    .replace(/\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)/g, " ")
    .replace(/\{[^}]*\}|\[[^\]]*\]/g, " ");
  const words = bare.match(/(?<![\w.:])[A-Za-z_:][\w:]*(?![\w:]*\s*\()/g) ?? [];
  return [...new Set(words.filter((word) => !KEYWORDS.has(word.toLowerCase())))].slice(0, METRICS_MAX);
}

async function has(metric: string, database: string, signal: AbortSignal): Promise<boolean> {
  const scope = { match: `{__name__=${JSON.stringify(metric)}}`, database, limit: 1 };
  return (await labelValues("__name__", scope, signal)).data.length > 0;
}

/** Metrics of a query that are not in the database that the page asks, with the first other one that has them. */
export async function metricsElsewhere(query: string, signal: AbortSignal): Promise<Elsewhere[]> {
  const found: Elsewhere[] = [];
  const here = chosenDatabase();
  const others = (await databases()).data.map(({ name }) => name).filter((name) => name !== here);
  for (const metric of metricsOf(query)) {
    if (await has(metric, here, signal)) continue;
    for (const database of others.slice(0, DATABASES_MAX)) {
      if (await has(metric, database, signal)) {
        found.push({ metric, database });
        break;
      }
    }
  }
  return found;
}
