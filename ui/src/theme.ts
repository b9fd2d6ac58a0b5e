// Dark or light: as the system says, until the reader chooses.

type Choice = "system" | "light" | "dark";

const KEY = "thalweg.theme";
const ORDER: readonly Choice[] = ["system", "light", "dark"];
const ICONS: Record<Choice, string> = { system: "◐", light: "☀", dark: "☾" };
const dark = matchMedia("(prefers-color-scheme: dark)");

/** Fired on `document` after colours have changed; what draws on a canvas draws again. */
export const THEME_CHANGED = "thalweg-theme";

function stored(): Choice {
  const value = localStorage.getItem(KEY);
  return ORDER.find((choice) => choice === value) ?? "system";
}

function apply(choice: Choice, button: HTMLButtonElement): void {
  document.documentElement.dataset["theme"] = choice === "system" ? (dark.matches ? "dark" : "light") : choice;
  button.textContent = ICONS[choice];
  button.setAttribute("aria-label", `Colours: ${choice}. Change`);
  button.title = `Colours: ${choice}`;
  document.dispatchEvent(new Event(THEME_CHANGED));
}

export function startTheme(button: HTMLButtonElement): void {
  let choice = stored();
  apply(choice, button);
  dark.addEventListener("change", () => apply(choice, button));
  button.addEventListener("click", () => {
    choice = ORDER[(ORDER.indexOf(choice) + 1) % ORDER.length] ?? "system";
    localStorage.setItem(KEY, choice);
    apply(choice, button);
  });
}

/** A colour of the style sheet, for drawing on a canvas. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Series colours in the style sheet: told apart with every common colour blindness, also by lightness. */
const SERIES_COLOURS = 8;
const DASHES = [
  { style: "solid", dash: [] },
  { style: "dashed", dash: [6, 4] },
  { style: "dotted", dash: [2, 3] },
] as const;

export interface Stroke {
  /** The colour's name in the style sheet. */
  name: string;
  /** CSS border style of the same look as `dash`. */
  style: string;
  dash: number[];
}

/** The stroke of the n-th series: after the eighth, colours come again dashed, then dotted. */
export function seriesStroke(index: number): Stroke {
  const { style, dash } = DASHES[Math.floor(index / SERIES_COLOURS) % DASHES.length] ?? DASHES[0];
  return { name: `series-${index % SERIES_COLOURS}`, style, dash: [...dash] };
}
