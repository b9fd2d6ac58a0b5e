// The row below the query box: kind of query, time, step, refresh, earlier queries.

import { element, Segmented, select } from "./dom.ts";
import { parseDuration, toInputTime } from "./format.ts";
import { forgetQueries, recentQueries } from "./history.ts";
import { RANGES, REFRESHES, type ExploreState, type Mode } from "./state.ts";

const CUSTOM = "custom";

interface Handlers {
  changed: (change: Partial<ExploreState>) => void;
  run: () => void;
}

function timeInput(label: string, changed: () => void): { field: HTMLLabelElement; input: HTMLInputElement } {
  const input = element("input", { attributes: { type: "datetime-local", step: "1" }, on: { change: changed } });
  return { field: element("label", { class: "field" }, element("span", { text: label }), input), input };
}

export class Controls {
  readonly root = element("div", { class: "controls" });
  readonly runButton: HTMLButtonElement;
  private readonly mode: Segmented;
  private readonly range: ReturnType<typeof select>;
  private readonly from: ReturnType<typeof timeInput>;
  private readonly to: ReturnType<typeof timeInput>;
  private readonly refresh: ReturnType<typeof select>;
  private readonly step: HTMLInputElement;
  private readonly stepField: HTMLLabelElement;
  private readonly recent: HTMLDetailsElement;
  private readonly recentList = element("ul", { class: "recent-list" });

  constructor(private readonly handlers: Handlers) {
    this.runButton = element("button", {
      class: "primary",
      text: "Run",
      attributes: { type: "button", title: "Enter" },
      on: { click: () => handlers.run() },
    });
    const modes = [
      ["range", "Range"],
      ["instant", "Instant"],
    ] as const;
    this.mode = new Segmented("Kind of query", modes, (value) => handlers.changed({ mode: value as Mode }));
    this.range = select("Time", [...RANGES, [CUSTOM, "Custom…"]], (value) => this.chooseRange(value));
    this.from = timeInput("From", () => this.chooseTimes());
    this.to = timeInput("To", () => this.chooseTimes());
    this.refresh = select("Refresh", REFRESHES, (value) => handlers.changed({ refresh: value }));
    this.step = element("input", {
      attributes: { type: "text", placeholder: "auto", size: "6", autocomplete: "off", title: "Such as 15s or 5m" },
      on: { change: () => this.chooseStep() },
    });
    this.stepField = element("label", { class: "field" }, element("span", { text: "Step" }), this.step);
    this.recent = element("details", { class: "recent" }, element("summary", { text: "History" }), this.recentList);
    this.recent.addEventListener("toggle", () => this.listRecent());
    this.recent.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.recent.open = false;
    });
    this.root.append(
      this.mode.root,
      this.range.field,
      this.from.field,
      this.to.field,
      this.stepField,
      this.refresh.field,
      this.recent,
    );
  }

  show(state: ExploreState): void {
    const custom = state.from_s !== null && state.to_s !== null;
    this.mode.value = state.mode;
    this.range.input.value = custom ? CUSTOM : this.withRange(state.range);
    this.from.field.hidden = this.to.field.hidden = !custom;
    this.from.field.hidden ||= state.mode === "instant";
    this.stepField.hidden = state.mode === "instant";
    if (custom) {
      this.from.input.value = toInputTime(state.from_s ?? 0);
      this.to.input.value = toInputTime(state.to_s ?? 0);
    }
    this.step.value = state.step;
    this.refresh.input.value = state.refresh;
    this.recent.open = false;
  }

  /** A link may name a range that is not in the list. */
  private withRange(range: string): string {
    const known = [...this.range.input.options].some((option) => option.value === range);
    if (!known) this.range.input.prepend(element("option", { text: `Last ${range}`, attributes: { value: range } }));
    return range;
  }

  private chooseRange(value: string): void {
    if (value !== CUSTOM) return this.handlers.changed({ range: value, from_s: null, to_s: null });
    const to_s = Math.floor(Date.now() / 1000);
    this.handlers.changed({ from_s: to_s - 3600, to_s });
  }

  private chooseTimes(): void {
    const from_s = Date.parse(this.from.input.value) / 1000;
    const to_s = Date.parse(this.to.input.value) / 1000;
    const right = from_s < to_s;
    this.to.input.setCustomValidity(right ? "" : "This is not after the beginning.");
    if (right) this.handlers.changed({ from_s, to_s });
    else this.to.input.reportValidity();
  }

  private chooseStep(): void {
    const text = this.step.value.trim();
    const right = text === "" || parseDuration(text) !== null;
    this.step.setCustomValidity(right ? "" : "A duration such as 15s, 5m or 1h, or nothing.");
    if (right) this.handlers.changed({ step: text });
    else this.step.reportValidity();
  }

  private listRecent(): void {
    if (!this.recent.open) return;
    const queries = recentQueries();
    const items = queries.map((query) => {
      const choose = (): void => {
        this.recent.open = false;
        this.handlers.changed({ query });
      };
      return element("li", {}, element("button", { text: query, attributes: { type: "button" }, on: { click: choose } }));
    });
    if (items.length === 0) items.push(element("li", { class: "muted", text: "No queries yet" }));
    else items.push(element("li", {}, element("button", { class: "muted", text: "Forget all", attributes: { type: "button" }, on: { click: () => (forgetQueries(), this.listRecent()) } })));
    this.recentList.replaceChildren(...items);
  }
}
