// Queries run in this browser, newest first.

const KEY = "thalweg.queries";
const QUERIES_MAX = 50;

export function recentQueries(): string[] {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(stored) ? stored.filter((query) => typeof query === "string") : [];
  } catch {
    return [];
  }
}

export function rememberQuery(query: string): void {
  const queries = [query, ...recentQueries().filter((other) => other !== query)].slice(0, QUERIES_MAX);
  try {
    localStorage.setItem(KEY, JSON.stringify(queries));
  } catch {
    // Storage is full or switched off; the page works without.
  }
}

export function forgetQueries(): void {
  localStorage.removeItem(KEY);
}
