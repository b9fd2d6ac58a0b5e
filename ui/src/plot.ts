// A time plot with its legend: uPlot draws, this class keeps its data, legend, size and colours together.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { lonePoints, stack, type Cell, type Columns } from "./align.ts";
import { element } from "./dom.ts";
import { formatClock, formatDate, formatTime, formatValue, type Unit } from "./format.ts";
import { colour, seriesStroke, THEME_CHANGED } from "./theme.ts";

export interface PlotOptions {
  /** Said to screen readers, with the number of series and points. */
  title: string;
  height_px: number;
  stacked?: boolean;
  /** The y axis begins at zero, so that small changes look small. */
  fromZero?: boolean;
  /** The y axis reaches at least this far, so that noise does not look like load. */
  y_max_least?: number;
  /** Plots with the same key show the same moment under the cursor. */
  syncKey?: string;
  /** Called with the stretch of time dragged over, in seconds since 1970. */
  zoomed?: (from_s: number, to_s: number) => void;
  /** Where an entry of the legend leads to for series like it; null if nowhere. */
  likeAddress?: (index: number) => string | null;
  /** Called after a double click. */
  reset?: () => void;
}

export interface PlotData extends Columns {
  names: string[];
  /** Which of the palette's colours each series has; without it, its place. */
  colours?: number[];
  unit: Unit;
  from_s: number;
  to_s: number;
  /** So many series are drawn at first; the others stand in the legend. */
  drawn?: number;
}

interface LegendEntry {
  name: string;
  /** The button, and what stands beside it. */
  row: HTMLElement;
  button: HTMLButtonElement;
  value: HTMLSpanElement;
}

/** With more entries than this, the legend can be searched. */
const SEARCHED_FROM = 8;
/** How far from a line, in pixels, the cursor still points at it. */
const NEAR_PX = 40;

const FONT = "11px system-ui, sans-serif";

export class Plot {
  readonly root: HTMLElement;
  private readonly canvas = element("div", { class: "plot-canvas", attributes: { role: "img" } });
  private readonly moment = element("span", { class: "plot-moment" });
  private readonly tooltip = element("div", { class: "tooltip", attributes: { hidden: "" } });
  private readonly search = element("input", {
    class: "legend-search",
    attributes: { type: "search", placeholder: "Search the legend", "aria-label": "Search the legend" },
    on: { input: () => this.filterLegend() },
  });
  private readonly legend = element("div", { class: "legend" });
  private readonly observer: ResizeObserver;
  private readonly repaint = (): void => this.rebuild();
  private entries: LegendEntry[] = [];
  private hidden = new Set<string>();
  /** The pointer is over this plot, not over one that shows the same moment. */
  private isHovered = false;
  private data: PlotData | null = null;
  private chart: uPlot | null = null;

  constructor(private readonly options: PlotOptions) {
    this.root = element("figure", { class: "plot" }, this.canvas, this.moment, this.search, this.legend);
    this.canvas.style.minHeight = `${options.height_px}px`;
    this.observer = new ResizeObserver(() => {
      const width = this.canvas.clientWidth;
      if (this.chart && width > 0 && width !== this.chart.width) {
        this.chart.setSize({ width, height: options.height_px });
      }
    });
    this.observer.observe(this.canvas);
    this.canvas.addEventListener("pointerenter", () => void (this.isHovered = true));
    this.canvas.addEventListener("pointerleave", () => {
      this.isHovered = false;
      this.tooltip.hidden = true;
    });
    document.addEventListener(THEME_CHANGED, this.repaint);
  }

  destroy(): void {
    document.removeEventListener(THEME_CHANGED, this.repaint);
    this.observer.disconnect();
    this.chart?.destroy();
    this.chart = null;
  }

  show(data: PlotData): void {
    const same = this.data !== null && this.data.unit === data.unit && sameList(this.data.names, data.names);
    if (!same) this.hideBeyond(data);
    this.data = data;
    const points = data.values.reduce((sum, column) => sum + column.filter((cell) => typeof cell === "number").length, 0);
    this.canvas.setAttribute("aria-label", `${this.options.title}: ${data.names.length} series, ${points} points`);
    this.root.dataset["points"] = String(points);
    if (same && this.chart) {
      this.chart.setData(this.aligned(data));
      this.writeLegend(this.chart);
    } else {
      this.rebuild();
    }
  }

  /** What was hidden stays so; new series beyond those that are drawn at first are hidden, too. */
  private hideBeyond(data: PlotData): void {
    const known = new Set(this.data?.names ?? []);
    const hidden = data.names.filter((name, index) => this.hidden.has(name) || (index >= (data.drawn ?? Infinity) && !known.has(name)));
    this.hidden = new Set(hidden);
  }

  private aligned(data: PlotData): uPlot.AlignedData {
    const shown = data.names.map((name) => !this.hidden.has(name));
    return [data.times, ...(this.options.stacked ? stack(data.values, shown) : data.values)];
  }

  private rebuild(): void {
    this.chart?.destroy();
    this.chart = null;
    const data = this.data;
    if (!data) return;
    this.buildLegend(data);
    const width = Math.max(this.canvas.clientWidth, 120);
    this.chart = new uPlot(this.chartOptions(data, width), this.aligned(data), this.canvas);
    this.chart.over.append(this.tooltip);
    this.writeLegend(this.chart);
  }

  private chartOptions(data: PlotData, width: number): uPlot.Options {
    const { stacked, syncKey, height_px } = this.options;
    const follows = !stacked && data.names.length > 1;
    return {
      width,
      height: height_px,
      padding: [8, 20, 0, 0],
      legend: { show: false },
      focus: { alpha: follows ? 0.25 : 1 },
      cursor: {
        y: false,
        points: { size: 7 },
        drag: { x: this.options.zoomed !== undefined, y: false, setScale: false, dist: 4 },
        focus: { prox: follows ? 24 : -1 },
        bind: { dblclick: () => () => (this.options.reset?.(), null) },
        ...(syncKey ? { sync: { key: syncKey } } : {}),
      },
      scales: {
        x: { time: true, range: () => [this.data?.from_s ?? 0, this.data?.to_s ?? 1] },
        y: { range: (_, low, high) => this.yRange(low, high) },
      },
      axes: [timeAxis(), valueAxis(data.unit)],
      series: [{}, ...data.names.map((name, index) => this.seriesOptions(name, data.colours?.[index] ?? index))],
      bands: stacked ? this.bands(data) : [],
      hooks: {
        setCursor: [(chart) => this.writeLegend(chart)],
        setSelect: [(chart) => this.readSelection(chart)],
        draw: [() => void (this.root.dataset["drawn"] = "true")],
      },
    };
  }

  private seriesOptions(name: string, colourIndex: number): uPlot.Series {
    const stroke = seriesStroke(colourIndex);
    const line = colour(stroke.name);
    return {
      label: name,
      show: !this.hidden.has(name),
      stroke: line,
      width: this.options.stacked ? 1 : 1.5,
      dash: stroke.dash,
      ...(this.options.stacked ? { fill: `color-mix(in srgb, ${line} 45%, transparent)` } : {}),
      points: {
        size: 5,
        fill: line,
        // Lines show themselves; what no line reaches is drawn as a point.
        filter: (chart, series, shown) => (shown ? null : lonePoints(chart.data[series] ?? [])),
      },
    };
  }

  /** Between each shown series and the one shown below it; the lowest is filled down to zero. */
  private bands(data: PlotData): uPlot.Band[] {
    const shown = data.names.flatMap((name, index) => (this.hidden.has(name) ? [] : [index + 1]));
    return shown.slice(1).map((upper, index) => ({ series: [upper, shown[index] ?? upper] }));
  }

  private yRange(low: number | null, high: number | null): [number, number] {
    const least = this.options.y_max_least ?? 0;
    if (low === null || high === null) return [0, Math.max(1, least)];
    if (this.options.stacked || (this.options.fromZero && low >= 0) || (low >= 0 && low <= high / 2)) {
      const top = Math.max(high * 1.08, least);
      return [0, top > 0 ? top : 1];
    }
    const padding = (high - low) * 0.1 || Math.abs(high) * 0.1 || 1;
    return [low - padding, high + padding];
  }

  private readSelection(chart: uPlot): void {
    const { left, width } = chart.select;
    if (width <= 0) return;
    const from_s = chart.posToVal(left, "x");
    const to_s = chart.posToVal(left + width, "x");
    chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.options.zoomed?.(from_s, to_s);
  }

  private buildLegend(data: PlotData): void {
    this.entries = data.names.map((name, index) => this.legendEntry(name, data.colours?.[index] ?? index, index));
    this.legend.replaceChildren(...this.entries.map((entry) => entry.row));
    this.search.hidden = data.names.length <= SEARCHED_FROM;
    this.filterLegend();
  }

  /** Shows the entries that have what is searched for in their name. */
  private filterLegend(): void {
    const wanted = this.search.hidden ? "" : this.search.value.trim().toLowerCase();
    for (const { name, row } of this.entries) row.hidden = !name.toLowerCase().includes(wanted);
  }

  private legendEntry(name: string, colourIndex: number, index: number): LegendEntry {
    const stroke = seriesStroke(colourIndex);
    const swatch = element("span", { class: "swatch" });
    swatch.style.borderTopColor = `var(--${stroke.name})`;
    swatch.style.borderTopStyle = stroke.style;
    const value = element("span", { class: "legend-value" });
    const button = element(
      "button",
      {
        attributes: { type: "button", title: `${name}: show or hide`, "aria-pressed": String(!this.hidden.has(name)) },
        on: { click: () => this.toggle(name) },
      },
      swatch,
      element("span", { class: "legend-name", text: name }),
      value,
    );
    const address = this.options.likeAddress?.(index) ?? null;
    if (address === null) return { name, row: button, button, value };
    const link = element("a", { class: "more-like", text: "≈", attributes: { href: address, title: `More like ${name}`, "aria-label": `More like ${name}` } });
    return { name, row: element("span", { class: "legend-row" }, button, link), button, value };
  }

  private toggle(name: string): void {
    const focused = this.entries.findIndex((entry) => entry.button === document.activeElement);
    if (!this.hidden.delete(name)) this.hidden.add(name);
    this.rebuild();
    this.entries[focused]?.button.focus();
  }

  /** Values under the cursor, or each series' last where the cursor is elsewhere. */
  private writeLegend(chart: uPlot): void {
    const data = this.data;
    if (!data) return;
    const row = chart.cursor.idx ?? null;
    const time_s = row === null ? undefined : data.times[row];
    this.moment.textContent = time_s === undefined ? "" : formatTime(time_s);
    for (const [index, entry] of this.entries.entries()) {
      const column = data.values[index] ?? [];
      entry.value.textContent = formatValue(row === null ? lastValue(column) : column[row], data.unit);
    }
    this.point(chart, row);
  }

  /** Marks the series under the cursor in the legend, and says its name and value beside the cursor. */
  private point(chart: uPlot, row: number | null): void {
    const data = this.data;
    const index = row === null || !this.isHovered ? null : this.nearest(chart, row);
    for (const [place, entry] of this.entries.entries()) entry.button.classList.toggle("under-cursor", place === index);
    this.tooltip.hidden = index === null || !data;
    if (index === null || row === null || !data) return;
    const swatch = element("span", { class: "swatch" });
    const stroke = seriesStroke(data.colours?.[index] ?? index);
    swatch.style.borderTopColor = `var(--${stroke.name})`;
    swatch.style.borderTopStyle = stroke.style;
    this.tooltip.replaceChildren(
      swatch,
      element("span", { class: "tooltip-name", text: data.names[index] ?? "" }),
      element("strong", { text: formatValue(data.values[index]?.[row], data.unit) }),
      element("span", { class: "muted", text: formatTime(data.times[row] ?? 0) }),
    );
    const { left = 0, top = 0 } = chart.cursor;
    const width = chart.over.clientWidth;
    // On the side where there is more room.
    const isLeft = left > width / 2;
    this.tooltip.style.left = isLeft ? "" : `${left + 14}px`;
    this.tooltip.style.right = isLeft ? `${width - left + 14}px` : "";
    this.tooltip.style.top = `${Math.max(0, top - 12)}px`;
  }

  /** The series whose line is nearest to the cursor, or whose area it is in. */
  private nearest(chart: uPlot, row: number): number | null {
    const { top = -1 } = chart.cursor;
    const shown = this.entries.flatMap((entry, index) => (this.hidden.has(entry.name) ? [] : [index]));
    const distances = shown.flatMap((index) => {
      const value = chart.data[index + 1]?.[row];
      if (typeof value !== "number") return [];
      const below_px = top - chart.valToPos(value, "y");
      // Areas lie below their lines.
      return this.options.stacked ? (below_px >= 0 ? [{ index, px: below_px }] : []) : [{ index, px: Math.abs(below_px) }];
    });
    const nearest = distances.sort((one, other) => one.px - other.px)[0];
    if (!nearest) return null;
    return this.options.stacked || shown.length === 1 || nearest.px <= NEAR_PX ? nearest.index : null;
  }
}

export function lastValue(column: Cell[]): Cell {
  return column.findLast((cell) => typeof cell === "number");
}

function sameList(one: string[], other: string[]): boolean {
  return one.length === other.length && one.every((name, index) => name === other[index]);
}

function axisLook(): Pick<uPlot.Axis, "stroke" | "grid" | "ticks" | "font"> {
  return {
    stroke: colour("muted"),
    grid: { stroke: colour("grid"), width: 1 },
    ticks: { show: false },
    font: FONT,
  };
}

function timeAxis(): uPlot.Axis {
  return {
    ...axisLook(),
    space: 80,
    size: (_, values) => ((values ?? []).some((value) => value.includes("\n")) ? 36 : 22),
    values: (_, splits, __, ___, increment) => timeTexts(splits, increment),
  };
}

/** Clock times; where other days than today are shown, the first of each day has its date below. */
function timeTexts(splits: number[], increment_s: number): string[] {
  const days = splits.map((split) => formatDate(new Date(split * 1000)));
  if (increment_s >= 86_400) return days.map((day) => day.slice(5));
  const today = formatDate(new Date());
  const dated = days.some((day) => day !== today);
  return splits.map((split, index) => {
    const clock = formatClock(new Date(split * 1000), increment_s < 60);
    const day = days[index] ?? "";
    return dated && day !== days[index - 1] ? `${clock}\n${day.slice(5)}` : clock;
  });
}

function valueAxis(unit: Unit): uPlot.Axis {
  return {
    ...axisLook(),
    values: (_, splits) => splits.map((split) => formatValue(split, unit)),
    // As wide as the longest text.
    size: (_, values) => Math.max(40, ...(values ?? []).map((value) => value.length * 6.4 + 14)),
    incrs: unit.startsWith("bytes") ? BINARY_INCREMENTS : undefined,
  } as uPlot.Axis;
}

/** 1, 2, 4 … in every binary power, so that byte axes have round marks. */
const BINARY_INCREMENTS = Array.from({ length: 60 }, (_, power) => 2 ** power);
