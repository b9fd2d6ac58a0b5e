// What the home view draws: the host's and the program's own metrics, which the server writes every five seconds.

import type { Labels } from "./api.ts";
import type { Unit } from "./format.ts";

export interface PanelQuery {
  /** PromQL; `$window` becomes a duration of at least six samples. */
  expression: string;
  name: (labels: Labels) => string;
}

export interface Panel {
  title: string;
  unit: Unit;
  queries: PanelQuery[];
  stacked?: boolean;
  y_max_least?: number;
  /** Order and colours of series whose names are known beforehand. */
  order?: readonly string[];
  /** The number at the card's corner, from each series' last value. */
  headline: (last: number[]) => number;
  /** Said in place of a plot where there is no data; without it the card is left out. */
  empty?: string;
}

const sum = (values: number[]): number => values.reduce((total, value) => total + value, 0);
const first = (values: number[]): number => values[0] ?? NaN;
const highest = (values: number[]): number => Math.max(...values);

function line(name: string, expression: string): PanelQuery {
  return { name: () => name, expression };
}

const DISKS = 'job="host",device!~"(dm-|loop|ram|zram|md|sr).*"';
const NETWORKS = 'job="host",device!~"lo|veth.*|br-.*|docker.*"';

export const PANELS: readonly Panel[] = [
  {
    title: "CPU",
    unit: "percent",
    stacked: true,
    y_max_least: 10,
    headline: sum,
    empty: "No CPU counters.",
    order: ["user", "system", "iowait", "nice", "softirq", "irq", "steal"],
    queries: [
      {
        name: (labels) => labels["mode"] ?? "busy",
        expression: '100 * avg by (mode) (rate(node_cpu_seconds_total{job="host",mode!="idle"}[$window]))',
      },
    ],
  },
  {
    title: "Memory used",
    unit: "bytes",
    stacked: true,
    headline: first,
    empty: "No memory gauges.",
    // Free memory comes last among the colours: grey.
    order: ["used", "reclaimable", "", "", "", "", "", "free"],
    queries: [
      line("used", 'node_memory_MemTotal_bytes{job="host"} - node_memory_MemAvailable_bytes{job="host"}'),
      line("reclaimable", 'node_memory_MemAvailable_bytes{job="host"} - node_memory_MemFree_bytes{job="host"}'),
      line("free", 'node_memory_MemFree_bytes{job="host"}'),
    ],
  },
  {
    title: "Load",
    unit: "plain",
    y_max_least: 1,
    headline: first,
    empty: "No load average on this system.",
    queries: [
      line("1 min", 'node_load1{job="host"}'),
      line("5 min", 'node_load5{job="host"}'),
      line("15 min", 'node_load15{job="host"}'),
    ],
  },
  {
    title: "Disk throughput",
    unit: "bytes_per_second",
    y_max_least: 65_536,
    headline: sum,
    empty: "No disk counters, as in many containers.",
    queries: [
      line("read", `sum(rate(node_disk_read_bytes_total{${DISKS}}[$window]))`),
      line("written", `sum(rate(node_disk_written_bytes_total{${DISKS}}[$window]))`),
    ],
  },
  {
    title: "Network",
    unit: "bytes_per_second",
    y_max_least: 16_384,
    headline: sum,
    empty: "No network device but loopback.",
    queries: [
      line("received", `sum(rate(node_network_receive_bytes_total{${NETWORKS}}[$window]))`),
      line("sent", `sum(rate(node_network_transmit_bytes_total{${NETWORKS}}[$window]))`),
    ],
  },
  {
    title: "File systems, used",
    unit: "percent",
    y_max_least: 100,
    headline: highest,
    queries: [
      {
        name: (labels) => labels["mountpoint"] ?? labels["device"] ?? "used",
        expression:
          '100 * (1 - max by (mountpoint) (node_filesystem_avail_bytes{job="host"} / node_filesystem_size_bytes{job="host"}))',
      },
    ],
  },
  {
    title: "Thalweg: memory",
    unit: "bytes",
    headline: first,
    queries: [line("resident", 'process_resident_memory_bytes{job="thalweg"}')],
  },
  {
    title: "Thalweg: CPU",
    unit: "percent",
    y_max_least: 5,
    headline: first,
    queries: [line("of one core", '100 * rate(process_cpu_seconds_total{job="thalweg"}[$window])')],
  },
  {
    title: "Thalweg: rows written",
    unit: "per_second",
    y_max_least: 10,
    headline: first,
    queries: [line("rows", 'sum(rate(thalweg_rows_written_total{job="thalweg"}[$window]))')],
  },
];
