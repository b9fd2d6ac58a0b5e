// "More like this": the series of a metric that are most like one of them over the plotted range.

import { ApiError, similar, type Answer, type Labels, type Place, type Places } from "./api.ts";
import { seriesName } from "./format.ts";

/** So many are looked for. */
const COUNT = 10;
/** Bins that the range is cut into, the finest first: a bin without a sample cannot be compared. */
const BINS = [120, 60, 30, 12] as const;
/** Bins are no narrower. */
const STEP_S_MIN = 1;

export interface LikeRange {
  start_s: number;
  end_s: number;
}

/** The selector of a series and no other that has more labels; null of what has no name, since it was computed. */
export function selectorOf(labels: Labels): string | null {
  return labels["__name__"] ? seriesName(labels) : null;
}

/** Series of the metric of a reference that are like it. Where the finest bins are not all filled, wider ones are taken. */
export async function findSimilar(reference: string, range: LikeRange, signal: AbortSignal): Promise<Answer<Places>> {
  const metric = reference.split("{", 1)[0] ?? "";
  let refusal = new ApiError("page", "There is no series to compare with.");
  for (const bins of BINS) {
    const step_s = Math.max(STEP_S_MIN, Math.ceil((range.end_s - range.start_s) / bins));
    try {
      return await similar({ match: metric, reference, ...range, step_s, count: COUNT }, signal);
    } catch (error) {
      if (!(error instanceof ApiError) || !error.message.includes("have no finite value")) throw error;
      refusal = error;
    }
  }
  throw refusal;
}

/** The reference and what was found, as one query. */
export function queryOf(reference: string, places: readonly Place[]): string {
  const found = places.flatMap((place) => selectorOf(place.metric) ?? []);
  return [reference, ...found].join(" or ");
}

/** How alike a series is, in words. */
export function placeText(place: Place): string {
  const correlation = place.correlation === null ? "" : `, correlation ${place.correlation.toFixed(3)}`;
  return `${place.rank}. ${seriesName(place.metric)}: distance ${place.distance.toFixed(2)}${correlation}`;
}
