// Numbers, units, durations and times as people read them.

import type { Labels } from "./api.ts";

export type Unit = "plain" | "bytes" | "bytes_per_second" | "percent" | "per_second" | "seconds";

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const DECIMAL: readonly (readonly [number, string])[] = [
  [1e18, "E"],
  [1e15, "P"],
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

/** At most `digits` significant digits, without an exponent where that stays readable. */
function significant(value: number, digits: number): string {
  const magnitude = Math.abs(value);
  if (magnitude !== 0 && (magnitude >= 1e15 || magnitude < 1e-4)) return value.toExponential(digits - 1);
  const rounded = Number(value.toPrecision(digits));
  return Math.abs(rounded) >= 10_000 ? rounded.toLocaleString("en-US") : String(rounded);
}

function bytes(value: number): string {
  let scaled = value;
  let power = 0;
  while (Math.abs(scaled) >= 1024 && power < BINARY.length - 1) {
    scaled /= 1024;
    power += 1;
  }
  return `${significant(scaled, 3)} ${BINARY[power] ?? "B"}`;
}

function scaled(value: number): string {
  for (const [size, suffix] of DECIMAL) {
    if (Math.abs(value) >= size) return `${significant(value / size, 4)} ${suffix}`;
  }
  return significant(value, 4);
}

/** A value short enough for an axis or a legend. */
export function formatValue(value: number | null | undefined, unit: Unit): string {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf";
  switch (unit) {
    case "bytes":
      return bytes(value);
    case "bytes_per_second":
      return `${bytes(value)}/s`;
    case "percent":
      return `${Math.abs(value) < 1 ? Number(value.toFixed(2)) : significant(value, 3)} %`;
    case "per_second":
      return `${scaled(value)}/s`;
    case "seconds":
      return `${significant(value, 3)} s`;
    case "plain":
      return scaled(value);
  }
}

/** What unit a query's values probably have: only told where the name of a metric says so and no function changed it. */
export function unitOf(query: string): Unit {
  const text = query.trim();
  const names = [...text.matchAll(/[A-Za-z_:][A-Za-z0-9_:]*_(bytes|seconds)(_total)?\b/g)];
  const name = names[0];
  if (names.length !== 1 || !name || /[*/^%]|\bcount\b/.test(text)) return "plain";
  const perSecond = /\bi?rate\(/.test(text);
  if (name[1] === "bytes") return perSecond ? "bytes_per_second" : "bytes";
  return perSecond ? "plain" : "seconds";
}

/** `{__name__="up", job="x"}` as `up{job="x"}`. */
export function seriesName(labels: Labels): string {
  const rest = Object.entries(labels)
    .filter(([key]) => key !== "__name__")
    .map(([key, value]) => `${key}=${JSON.stringify(value)}`);
  const name = labels["__name__"] ?? "";
  if (rest.length === 0) return name || "{}";
  return `${name}{${rest.join(", ")}}`;
}

const DURATION = /^(\d+(?:\.\d+)?)(ms|s|m|h|d|w|y)$/;
const UNIT_S: Record<string, number> = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86_400, w: 604_800, y: 31_536_000 };

/** Seconds of `90`, `15s`, `5m`, `30d`; null if it is none of these. */
export function parseDuration(text: string): number | null {
  const trimmed = text.trim();
  if (/^\d+(\.\d+)?$/.test(trimmed)) return Number(trimmed) > 0 ? Number(trimmed) : null;
  const match = DURATION.exec(trimmed);
  const factor = match ? UNIT_S[match[2] ?? ""] : undefined;
  const seconds = match && factor ? Number(match[1]) * factor : 0;
  return seconds > 0 ? seconds : null;
}

export function formatDuration(seconds: number): string {
  for (const unit of ["d", "h", "m"] as const) {
    const size = UNIT_S[unit] ?? 1;
    if (seconds >= size && seconds % size === 0) return `${seconds / size} ${unit === "m" ? "min" : unit}`;
  }
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${significant(seconds, 3)} s`;
}

const two = (value: number): string => String(value).padStart(2, "0");

/** Local time, `2026-03-01 12:00:05`. */
export function formatTime(time_s: number): string {
  const date = new Date(time_s * 1000);
  return `${formatDate(date)} ${formatClock(date, true)}`;
}

export function formatDate(date: Date): string {
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

export function formatClock(date: Date, seconds: boolean): string {
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}`;
  return seconds ? `${clock}:${two(date.getSeconds())}` : clock;
}

/** For `<input type="datetime-local">`, which takes local time without a zone. */
export function toInputTime(time_s: number): string {
  const date = new Date(time_s * 1000);
  return `${formatDate(date)}T${formatClock(date, true)}`;
}
