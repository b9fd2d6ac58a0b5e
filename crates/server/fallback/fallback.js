// The plain page: one instant query, its answer as a table.
"use strict";

const form = document.getElementById("form");
const query = document.getElementById("query");
const message = document.getElementById("message");
const table = document.getElementById("table");

function name(labels) {
  const { __name__ = "", ...rest } = labels;
  const pairs = Object.entries(rest).map(([key, value]) => `${key}=${JSON.stringify(value)}`);
  return pairs.length > 0 ? `${__name__}{${pairs.join(", ")}}` : __name__ || "{}";
}

function rowsOf({ resultType, result }) {
  if (resultType === "scalar" || resultType === "string") return [[resultType, result[1]]];
  return result.map((item) => {
    const points = item.values ?? [item.value ?? []];
    const value = points.map((point) => point[1] ?? "histogram").join(" ");
    return [name(item.metric), value];
  });
}

function show(rows) {
  table.replaceChildren(
    ...rows.map((row) => {
      const line = document.createElement("tr");
      for (const text of row) line.insertCell().textContent = text;
      return line;
    }),
  );
}

async function run() {
  show([]);
  message.textContent = "…";
  try {
    const answer = await fetch(`api/v1/query?${new URLSearchParams({ query: query.value })}`);
    const body = await answer.json();
    if (body.status !== "success") throw new Error(`${body.errorType}: ${body.error}`);
    const rows = rowsOf(body.data);
    message.textContent = `${rows.length} rows`;
    show(rows);
  } catch (error) {
    message.textContent = String(error.message ?? error);
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  location.hash = new URLSearchParams({ q: query.value });
  run();
});

const linked = new URLSearchParams(location.hash.slice(1)).get("q");
if (linked) {
  query.value = linked;
  run();
}
