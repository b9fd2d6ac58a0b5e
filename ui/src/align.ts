// From the API's lists of points to the columns that a plot draws: one of times, one of values for each series.

import type { MatrixItem, Point } from "./api.ts";

/** null is a gap; undefined is no point here, but the line goes on. */
export type Cell = number | null | undefined;

export interface Columns {
  /** Seconds since 1970, ascending. */
  times: number[];
  values: Cell[][];
}

/** A value that can be drawn, or null: infinities and NaN have no place on an axis. */
function drawable(text: string): number | null {
  const value = Number(text);
  return Number.isFinite(value) ? value : null;
}

/** On the grid of a range query, so that a step without a value shows as a gap. */
export function alignToGrid(items: MatrixItem[], start_s: number, end_s: number, step_s: number): Columns {
  const length = Math.floor((end_s - start_s) / step_s + 1e-6) + 1;
  const times = Array.from({ length }, (_, index) => start_s + index * step_s);
  const values = items.map((item) => {
    const column: Cell[] = new Array<Cell>(length).fill(null);
    for (const [time_s, text] of item.values ?? []) {
      const index = Math.round((time_s - start_s) / step_s);
      if (index >= 0 && index < length) column[index] = drawable(text);
    }
    return column;
  });
  return { times, values };
}

/** At the samples' own times, which differ between series. */
export function alignSamples(items: MatrixItem[]): Columns {
  const all = new Set<number>();
  for (const item of items) for (const [time_s] of item.values ?? []) all.add(time_s);
  const times = [...all].sort((a, b) => a - b);
  const place = new Map(times.map((time_s, index) => [time_s, index]));
  const values = items.map((item) => {
    const column: Cell[] = new Array<Cell>(times.length).fill(undefined);
    for (const [time_s, text] of item.values ?? []) column[place.get(time_s) ?? 0] = drawable(text);
    return column;
  });
  return { times, values };
}

/** Each column plus all before it that are shown. Where a series has no value it adds none and keeps its gap. */
export function stack(columns: Cell[][], shown: boolean[]): Cell[][] {
  const sums = new Array<number>(columns[0]?.length ?? 0).fill(0);
  return columns.map((column, series) =>
    column.map((cell, row) => {
      if (typeof cell !== "number" || !shown[series]) return cell;
      const sum = (sums[row] ?? 0) + cell;
      sums[row] = sum;
      return sum;
    }),
  );
}

/** Values that have a gap on both sides, which no line would show. */
export function lonePoints(column: ArrayLike<Cell>): number[] {
  const lone: number[] = [];
  for (let index = 0; index < column.length; index += 1) {
    if (typeof column[index] !== "number") continue;
    if (typeof column[index - 1] !== "number" && typeof column[index + 1] !== "number") lone.push(index);
  }
  return lone;
}

export interface Digest {
  last: number;
  min: number;
  mean: number;
  max: number;
}

/** What a table says of a series. NaN is passed over unless there is nothing else. */
export function digest(points: Point[]): Digest {
  const numbers = points.map(([, text]) => parseSample(text));
  const last = numbers.at(-1) ?? NaN;
  const known = numbers.filter((value) => !Number.isNaN(value));
  let [min, max, sum] = [Infinity, -Infinity, 0];
  for (const value of known) {
    min = Math.min(min, value);
    max = Math.max(max, value);
    sum += value;
  }
  return known.length === 0 ? { last, min: NaN, mean: NaN, max: NaN } : { last, min, mean: sum / known.length, max };
}

/** Prometheus writes infinities as `+Inf` and `-Inf`. */
export function parseSample(text: string): number {
  if (text === "+Inf" || text === "Inf") return Infinity;
  return text === "-Inf" ? -Infinity : Number(text);
}
