// Elements in one expression, so that a view's code reads like the page it makes.

type Child = Node | string | null;

interface Properties {
  class?: string;
  text?: string;
  attributes?: Record<string, string>;
  on?: { [K in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[K]) => void };
}

/** Makes an element. Text is always set as text, never parsed as HTML. */
export function element<K extends keyof HTMLElementTagNameMap>(
  name: K,
  properties: Properties = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const node = document.createElement(name);
  if (properties.class !== undefined) node.className = properties.class;
  if (properties.text !== undefined) node.textContent = properties.text;
  for (const [key, value] of Object.entries(properties.attributes ?? {})) node.setAttribute(key, value);
  for (const [event, listener] of Object.entries(properties.on ?? {})) {
    node.addEventListener(event, listener as EventListener);
  }
  for (const child of children) if (child !== null) node.append(child);
  return node;
}

/** A labelled drop-down list. `changed` is called with the value chosen. */
export function select(
  label: string,
  options: readonly (readonly [value: string, text: string])[],
  changed: (value: string) => void,
): { field: HTMLLabelElement; input: HTMLSelectElement } {
  const input = element("select");
  for (const [value, text] of options) input.append(element("option", { text, attributes: { value } }));
  input.addEventListener("change", () => changed(input.value));
  const field = element("label", { class: "field" }, element("span", { text: label }), input);
  return { field, input };
}

/** A row of buttons of which one is pressed. */
export class Segmented {
  readonly root: HTMLDivElement;
  private readonly buttons = new Map<string, HTMLButtonElement>();

  constructor(label: string, options: readonly (readonly [value: string, text: string])[], chosen: (value: string) => void) {
    this.root = element("div", { class: "segmented", attributes: { role: "group", "aria-label": label } });
    for (const [value, text] of options) {
      const button = element("button", { text, attributes: { type: "button" }, on: { click: () => chosen(value) } });
      this.buttons.set(value, button);
      this.root.append(button);
    }
  }

  set value(value: string) {
    for (const [key, button] of this.buttons) button.setAttribute("aria-pressed", String(key === value));
  }
}
