// The database that the page asks: `?db=…` before the `#` of the address, so that a link shows the same one.

import { element } from "./dom.ts";

export const DEFAULT_DATABASE = "default";

export function chosenDatabase(): string {
  return new URLSearchParams(location.search).get("db") || DEFAULT_DATABASE;
}

/** The address of this view over another database. */
export function databaseAddress(name: string): string {
  const parameters = new URLSearchParams(location.search);
  if (name === DEFAULT_DATABASE) parameters.delete("db");
  else parameters.set("db", name);
  return `${location.pathname}${parameters.size > 0 ? `?${parameters}` : ""}${location.hash}`;
}

/** Fills the list of databases. It stays hidden where there is nothing to choose. */
export function offerDatabases(list: HTMLSelectElement, names: readonly string[]): void {
  const chosen = chosenDatabase();
  const offered = [...new Set([DEFAULT_DATABASE, ...names, chosen])].sort();
  list.replaceChildren(...offered.map((name) => element("option", { text: name, attributes: { value: name } })));
  list.value = chosen;
  list.hidden = offered.length < 2;
  list.addEventListener("change", () => {
    // The view begins anew; what is after the `#` stays.
    location.assign(databaseAddress(list.value));
  });
}
