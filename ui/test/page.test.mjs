// Drives the page in a headless Chromium as a reader would, and saves what it looks like.
//
//   node test/page.test.mjs http://127.0.0.1:7780 OUT_FOLDER
//
// The server must be writing host metrics. Chromium is $CHROMIUM or one of the usual places. Exits 1 with a message
// at the first thing that is wrong.

import { strict as assert } from "node:assert";
import { accessSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const WAIT_MS = 30_000;
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
const PLACES = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

function findChromium() {
  const found = PLACES.find((place) => {
    if (!place) return false;
    try {
      accessSync(place);
      return true;
    } catch {
      return false;
    }
  });
  assert(found, `No Chromium at ${PLACES.filter(Boolean).join(", ")}. Install it, or set CHROMIUM to its path.`);
  return found;
}

const [, , server, folder] = process.argv;
assert(server && folder, "Usage: node test/page.test.mjs SERVER_URL OUT_FOLDER");
mkdirSync(folder, { recursive: true });
const origin = server.replace(/\/$/, "");
const profile = mkdtempSync(join(tmpdir(), "thalweg-page-"));

/** Waits until lines or areas are on a plot's canvas: series have colour, axes and grid are close to grey. */
async function drawn(page, title) {
  const coloured = ([wanted, least]) => {
    const canvas = document.querySelector(`.plot[data-drawn] [aria-label^="${wanted}"] canvas`);
    if (!canvas) return false;
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (let at = 0; at < data.length; at += 4) {
      const [red, green, blue, alpha] = data.subarray(at, at + 4);
      if (alpha > 40 && Math.max(red, green, blue) - Math.min(red, green, blue) > 60) count += 1;
    }
    return count >= least;
  };
  await page.waitForFunction(coloured, [title, 100], { timeout: WAIT_MS, polling: 250 });
}

async function noOverflow(page, where) {
  const { content, window } = await page.evaluate(() => ({
    content: document.documentElement.scrollWidth,
    window: document.documentElement.clientWidth,
  }));
  assert(content <= window, `${where}: the page is ${content} px wide in a window of ${window} px`);
}

/** Waits until a locator finds so many elements: the page draws after what causes it. */
async function counts(locator, expected, what) {
  const end = Date.now() + WAIT_MS;
  let found = await locator.count();
  while (found !== expected && Date.now() < end) {
    await locator.page().evaluate(() => new Promise(requestAnimationFrame));
    found = await locator.count();
  }
  assert.equal(found, expected, what);
}

async function homePlots(page) {
  await page.goto(`${origin}/#/`);
  // At least three panels with at least two points each, without a reload.
  await page.waitForFunction(
    () => [...document.querySelectorAll(".plot[data-drawn]")].filter((plot) => Number(plot.dataset.points) >= 2).length >= 3,
    null,
    { timeout: WAIT_MS },
  );
  for (const title of ["Memory used", "Load"]) await drawn(page, title);
}

async function completion(page) {
  await page.goto(`${origin}/#/explore?range=5m`);
  const box = page.getByRole("textbox", { name: "PromQL query" });
  await box.focus();
  await page.keyboard.type("node_lo", { delay: 20 });
  const options = page.getByRole("option", { name: /node_load/ });
  await options.first().waitFor({ timeout: WAIT_MS });
  await page.keyboard.press("Escape");
  await page.keyboard.press("Control+A");
  await page.keyboard.press("Delete");
  await page.keyboard.type('node_load1{jo', { delay: 20 });
  await page.getByRole("option", { name: "job" }).first().waitFor({ timeout: WAIT_MS });
  return box;
}

async function rangeQuery(page, box) {
  await page.keyboard.press("Escape");
  await box.focus();
  await page.keyboard.press("Control+A");
  await page.keyboard.type('{__name__=~"node_load1|node_load5|node_load15"}');
  await page.keyboard.press("Escape");
  await page.keyboard.press("Enter");
  await page.locator('.explore[data-state="done"] .plot[data-drawn]').waitFor({ timeout: WAIT_MS });
  const points = Number(await page.locator(".explore .plot").getAttribute("data-points"));
  assert(points >= 6, `the Explore plot has ${points} points of three series`);
  await counts(page.locator(".explore tbody tr"), 3, "rows of the table");
  assert.match(page.url(), /#\/explore\?q=.*node_load1/, "the address holds the query");
}

async function sortedTable(page) {
  const heading = page.locator("th", { hasText: "max" });
  await heading.getByRole("button").click();
  assert.equal(await heading.getAttribute("aria-sort"), "descending");
  const texts = await page.locator(".explore tbody tr td:last-child").allTextContents();
  const values = texts.map((text) => Number(text.replaceAll(",", "")));
  assert.deepEqual(values, [...values].sort((a, b) => b - a), "the column is sorted");
}

/** Dragging over a part of the plot shows that part; a double click shows the whole again. */
async function zoom(page) {
  const { x, y, width } = await page.locator(".explore .u-over").boundingBox();
  await page.mouse.move(x + width * 0.6, y + 60);
  await page.mouse.down();
  await page.mouse.move(x + width * 0.8, y + 60, { steps: 4 });
  await page.mouse.up();
  await page.waitForURL(/from=.*&to=/, { timeout: WAIT_MS });
  await page.locator('.explore[data-state="done"] .plot').waitFor({ timeout: WAIT_MS });
  await page.locator(".explore .u-over").dblclick();
  await page.waitForURL((url) => !url.hash.includes("from="), { timeout: WAIT_MS });
  await page.locator('.explore[data-state="done"] .plot').waitFor({ timeout: WAIT_MS });
}

/** What the cursor points at: a tooltip with name and value, and its row in the legend. */
async function tooltip(page) {
  // Begun anew: what is drawn stays as it is.
  await page.reload();
  await page.locator('.explore[data-state="done"] .plot[data-drawn]').waitFor({ timeout: WAIT_MS });
  const { x, y, width, height } = await page.locator(".explore .u-over").boundingBox();
  const shown = page.locator(".explore .tooltip:not([hidden])");
  // Of a server that has just begun only the end of the range has samples.
  for (const along of [0.995, 0.985, 0.97, 0.95]) {
    for (let part = 1; part < 20 && (await shown.count()) === 0; part += 1) {
      await page.mouse.move(x + width * along, y + (height * part) / 20);
    }
  }
  await shown.waitFor({ timeout: WAIT_MS });
  const name = await shown.locator(".tooltip-name").textContent();
  assert.match(name, /^node_load/, "the tooltip has the name of a series");
  assert.match(await shown.locator("strong").textContent(), /\d/, "the tooltip has a value");
  const marked = await page.locator(".explore .legend button.under-cursor .legend-name").allTextContents();
  assert.deepEqual(marked, [name], "the row in the legend is marked");
  await page.mouse.move(x + width / 2, y - 200);
  await shown.waitFor({ state: "detached", timeout: WAIT_MS });
}

/** More series than are drawn: all stand in the legend, which can be searched and draws those that are chosen. */
async function longLegend(page) {
  const lines = Array.from({ length: 120 }, (_, index) => `many,n=${String(index).padStart(3, "0")} value=${index}`);
  const written = await fetch(`${origin}/write`, { method: "POST", body: lines.join("\n") });
  assert.equal(written.status, 204);
  await page.goto(`${origin}/#/explore?range=5m&q=many`);
  const rows = page.locator(".explore .legend button");
  const drawn = page.locator('.explore .legend button[aria-pressed="true"]');
  const visible = page.locator(".explore .legend button:visible");
  await counts(rows, 120, "the legend shows all");
  await counts(drawn, 100, "100 are drawn");
  await page.getByRole("searchbox", { name: "Search the legend" }).fill('n="11');
  await counts(visible, 10, "the search leaves ten");
  await visible.last().click();
  await counts(drawn, 101, "one more is drawn");
}

/** A slow answer: the page says that the query runs. */
async function loading(page) {
  let release = () => {};
  const held = new Promise((done) => (release = done));
  await page.route("**/api/v1/query_range", async (route) => {
    await held;
    await route.continue();
  });
  await page.goto(`${origin}/#/explore?range=5m&q=node_load5`);
  await page.locator('.explore[data-state="busy"] .status', { hasText: "Running the query" }).waitFor({ timeout: WAIT_MS });
  release();
  await page.locator('.explore[data-state="done"] .plot').waitFor({ timeout: WAIT_MS });
  await page.unroute("**/api/v1/query_range");
}

/** The plot as a picture of the server: the browser decodes all three forms of it, and they are coloured. */
async function pictures(page) {
  await page.goto(`${origin}/#/explore?range=5m&q=node_load1`);
  await page.locator('.explore[data-state="done"] .plot[data-drawn]').waitFor({ timeout: WAIT_MS });
  for (const format of ["PNG", "SVG", "WebP"]) {
    const href = await page.getByRole("link", { name: format, exact: true }).getAttribute("href");
    const { width, height, coloured } = await page.evaluate(async (src) => {
      const image = new Image();
      image.src = src;
      await image.decode();
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
      const context = canvas.getContext("2d");
      context.drawImage(image, 0, 0);
      const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
      let coloured = 0;
      for (let at = 0; at < data.length; at += 4) {
        if (Math.max(...data.subarray(at, at + 3)) - Math.min(...data.subarray(at, at + 3)) > 60) coloured += 1;
      }
      return { width: canvas.width, height: canvas.height, coloured };
    }, href);
    assert.deepEqual([width, height], [900, 360], `${format}: the size of the picture`);
    assert(coloured > 20, `${format}: ${coloured} coloured pixels`);
  }
}

async function instantQuery(page) {
  await page.goto(`${origin}/#/explore?mode=instant&q=${encodeURIComponent("2 * vector(21)")}`);
  await page.locator('.explore[data-state="done"] td', { hasText: /^42$/ }).waitFor({ timeout: WAIT_MS });
}

async function failedQuery(page) {
  await page.goto(`${origin}/#/explore?q=${encodeURIComponent("sum(")}`);
  const alert = page.getByRole("alert").filter({ hasText: "bad_data" });
  await alert.waitFor({ timeout: WAIT_MS });
  assert.match(await alert.textContent(), /parse error|unexpected|expected/i, "the server's own words");
}

/** As after a stock Telegraf, whose metrics are in a database of their own. */
async function anotherDatabase(page) {
  const written = await fetch(`${origin}/write?db=telegraf`, { method: "POST", body: "elsewhere value=42" });
  assert.equal(written.status, 204);
  await page.goto(`${origin}/#/explore?mode=instant&q=elsewhere`);
  await page.reload();
  // The page says where it is.
  const note = page.locator(".explore .notes li", { hasText: "elsewhere is not in the database default, but in telegraf" });
  await note.getByRole("link", { name: "telegraf" }).waitFor({ timeout: WAIT_MS });
  const list = page.getByRole("combobox", { name: "Database" });
  await list.selectOption("telegraf");
  await page.waitForURL(/\?db=telegraf#\/explore.*q=elsewhere/, { timeout: WAIT_MS });
  await page.locator('.explore[data-state="done"] td', { hasText: /^42$/ }).waitFor({ timeout: WAIT_MS });
  await page.getByRole("combobox", { name: "Database" }).selectOption("default");
  await page.waitForURL((url) => url.search === "", { timeout: WAIT_MS });
}

/** What a server without a prometheus.yml says in the views of what it scrapes and evaluates. */
async function emptyLists(page) {
  for (const [view, heading, words] of [
    ["targets", "Targets", "Nothing is scraped"],
    ["discovery", "Service discovery", "Nothing is scraped"],
    ["rules", "Rules", "There are no rules"],
    ["alerts", "Alerts", "There are no rules"],
    ["views", "Materialised views", "no materialised views"],
  ]) {
    await page.goto(`${origin}/#/${view}`);
    await page.getByRole("heading", { name: heading, exact: true }).waitFor({ timeout: WAIT_MS });
    await page.getByText(words).waitFor({ timeout: WAIT_MS });
  }
}

/** A view of three hours, two of which have rows, and a filter that leaves none. */
async function viewList(page) {
  const lines = [10, 20, 7210].map((at_s) => `gauge,river=a level=${at_s} ${at_s}000000000`);
  const written = await fetch(`${origin}/write`, { method: "POST", body: lines.join("\n") });
  assert.equal(written.status, 204);
  const made = "CREATE MATERIALIZED VIEW gauge_hour AS SELECT time_bucket('1 hour', time) AS hour, river, max(level) AS high FROM gauge GROUP BY hour, river";
  const created = await fetch(`${origin}/sql`, { method: "POST", body: made });
  assert.equal(created.status, 200, await created.text());
  await page.goto(`${origin}/#/views`);
  const row = page.locator("tbody tr", { hasText: "gauge_hour" });
  await row.locator("td", { hasText: /^valid$/ }).waitFor({ timeout: WAIT_MS });
  await page.reload();
  await row.waitFor({ timeout: WAIT_MS });
  const cells = await row.locator("td").allTextContents();
  assert.deepEqual(cells.slice(0, 5), ["gauge_hour", "gauge", "sql", "valid", "none"]);
  assert.deepEqual(cells.slice(7, 9), ["2", "2"], "rows that are stored and were written");
  assert.match(cells[9], /\d s$/, "the CPU time");
  await page.getByRole("heading", { name: /^default: 1 view, refreshed with/ }).waitFor({ timeout: WAIT_MS });
  await page.getByRole("searchbox", { name: "Filter" }).fill("nothing of this name");
  await counts(row, 0, "the filter leaves no row");
  const dropped = await fetch(`${origin}/sql`, { method: "POST", body: "DROP MATERIALIZED VIEW gauge_hour" });
  assert.equal(dropped.status, 200);
}

/** Recording rules that are kept right stand below views; others are not in the list. */
async function keptRules(page) {
  const times = { lastEvaluation: new Date().toISOString(), evaluationTime: 0.001 };
  const rule = (name, materialized) => ({ name, query: "sum(elsewhere)", health: "ok", type: "recording", materialized, ...times });
  const kept = { pending: [{ start: times.lastEvaluation, end: times.lastEvaluation }], lastError: null, samplesWritten: 1234, refused: 5, cpuTime: 2 };
  const data = { groups: [{ name: "g", file: "rules.yml", interval: 60, rules: [rule("a:kept", kept), rule("a:plain")], ...times }] };
  await page.route("**/api/v1/rules*", (route) => route.fulfill({ json: { status: "success", data } }));
  await page.getByRole("searchbox", { name: "Filter" }).fill("a:");
  const row = page.locator("tbody tr", { hasText: "a:kept" });
  await row.waitFor({ timeout: WAIT_MS });
  const cells = await row.locator("td").allTextContents();
  assert.deepEqual(cells.slice(0, 4), ["a:kept", "sum(elsewhere)", "refreshing", "1"]);
  assert.deepEqual([cells[5], cells[7]], ["1,234", "5"], "samples that were written, and refused");
  await counts(page.locator("tbody tr", { hasText: "a:plain" }), 0, "a rule that is not kept right");
  await page.unroute("**/api/v1/rules*");
}

/** An alert with a picture of its expression beside it, which stays while the list is drawn again. */
async function alertPicture(page) {
  const now = new Date().toISOString();
  const alert = { labels: { alertname: "Flood", station: "north" }, annotations: {}, state: "firing", activeAt: now, value: "42" };
  const times = { lastEvaluation: now, evaluationTime: 0.001 };
  const rule = { name: "Flood", query: "elsewhere > 3", health: "ok", type: "alerting", state: "firing", alerts: [alert], ...times };
  const data = { groups: [{ name: "g", file: "rules.yml", interval: 60, rules: [rule], ...times }] };
  await page.route("**/api/v1/rules*", (route) => route.fulfill({ json: { status: "success", data } }));
  const asked = page.waitForRequest((request) => request.url().includes("query_range") && request.postData().includes("query=elsewhere&"), { timeout: WAIT_MS });
  await page.goto(`${origin}/#/alerts`);
  await asked;
  const picture = page.locator("details.picture[open] .plot[data-drawn]");
  await picture.waitFor({ timeout: WAIT_MS });
  await page.getByText("compared with 3").waitFor({ timeout: WAIT_MS });
  // The list is loaded again meanwhile.
  await page.waitForResponse((response) => response.url().includes("/api/v1/rules"), { timeout: WAIT_MS });
  await picture.waitFor({ timeout: WAIT_MS });
  await page.unroute("**/api/v1/rules*");
}

/** A server that asks to sign in, whose administrator's token is in THALWEG_PAGE_TOKEN. */
async function signInAndOut(page) {
  const guarded = process.env.THALWEG_PAGE_GUARDED;
  if (!guarded) return;
  await page.goto(guarded);
  await page.getByLabel("Password or token").fill("wrong");
  await page.screenshot({ path: join(folder, "sign-in-1280-light.png") });
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").filter({ hasText: "wrong" }).waitFor({ timeout: WAIT_MS });
  await page.getByLabel("Password or token").fill(process.env.THALWEG_PAGE_TOKEN);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("button", { name: "Sign out" }).click({ timeout: WAIT_MS });
  await page.getByRole("heading", { name: "Sign in" }).waitFor({ timeout: WAIT_MS });
  const cookies = await page.context().cookies();
  assert(cookies.every((cookie) => cookie.name !== "thalweg-session"), "the cookie is gone");
}

/** "More like this" leads to the series that are like the one of its row, nearest first. */
async function moreLikeThis(page) {
  const now_s = Math.floor(Date.now() / 1000);
  const forms = { a: (at) => Math.sin(at), b: (at) => 40 + 7 * Math.sin(at + 0.1), c: (at) => Math.sin(3 * at), d: (at) => Math.cos(at) };
  const lines = Object.entries(forms).flatMap(([pier, form]) =>
    Array.from({ length: 361 }, (_, step) => `tide,pier=${pier} value=${form(step / 30)} ${now_s - 10 * (360 - step)}000000000`),
  );
  const written = await fetch(`${origin}/write`, { method: "POST", body: lines.join("\n") });
  assert.equal(written.status, 204);
  await page.goto(`${origin}/#/explore?range=30m&q=tide`);
  await page.locator('.explore[data-state="done"] .plot[data-drawn]').waitFor({ timeout: WAIT_MS });
  await page.getByRole("link", { name: 'More like tide{pier="a"}' }).click();
  await page.waitForURL(/like=tide/, { timeout: WAIT_MS });
  const first = page.locator('.explore[data-state="done"] .notes li.place').first();
  await first.waitFor({ timeout: WAIT_MS });
  assert.match(await first.textContent(), /^1\. tide\{pier="b"\}: distance .*, correlation 0\.99/);
  await counts(page.locator(".explore .legend button"), 4, "the reference and the three others are plotted");
}

/** The picture of README.md: an hour of three rivers, and what the cursor points at. */
async function readmePicture(browser, watch) {
  const now_s = Math.floor(Date.now() / 1000);
  const level = (station, step) => 3 + station + Math.sin(step / (9 + 4 * station)) + 0.2 * Math.sin(step * (1.3 + station));
  const lines = ["north", "south", "west"].flatMap((name, station) =>
    Array.from({ length: 241 }, (_, step) => `river,station=${name} level=${level(station, step)} ${now_s - 15 * (240 - step)}000000000`),
  );
  const written = await fetch(`${origin}/write`, { method: "POST", body: lines.join("\n") });
  assert.equal(written.status, 204);
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, reducedMotion: "reduce" });
  watch(page, "README");
  await page.goto(`${origin}/#/explore?range=1h&q=river_level`);
  await page.locator('.explore[data-state="done"] .plot[data-drawn]').waitFor({ timeout: WAIT_MS });
  const { x, y, width, height } = await page.locator(".explore .u-over").boundingBox();
  const shown = page.locator(".explore .tooltip:not([hidden])");
  for (let part = 6; part < 40 && (await shown.count()) === 0; part += 1) {
    await page.mouse.move(x + width * 0.62, y + (height * part) / 40);
  }
  await shown.waitFor({ timeout: WAIT_MS });
  await page.screenshot({ path: join(folder, "readme.png") });
  await page.close();
}

const LOOKS = [
  { name: "home-1280", width: 1280, height: 900, hash: "#/" },
  { name: "home-390", width: 390, height: 844, hash: "#/" },
  { name: "explore-1280", width: 1280, height: 900, hash: `#/explore?range=5m&q=${encodeURIComponent('{__name__=~"node_load.*"}')}` },
  { name: "explore-390", width: 390, height: 844, hash: `#/explore?range=5m&q=${encodeURIComponent('{__name__=~"node_load.*"}')}` },
];

async function screenshots(browser, watch) {
  for (const colorScheme of ["light", "dark"]) {
    const context = await browser.newContext({ colorScheme, reducedMotion: "reduce" });
    for (const look of LOOKS) {
      const page = await context.newPage();
      watch(page, `${look.name} ${colorScheme}`);
      await page.setViewportSize({ width: look.width, height: look.height });
      await page.goto(`${origin}/${look.hash}`);
      await page.locator(".plot[data-drawn]").first().waitFor({ timeout: WAIT_MS });
      await noOverflow(page, `${look.name} ${colorScheme}`);
      await page.screenshot({ path: join(folder, `${look.name}-${colorScheme}.png`), fullPage: true });
      await page.close();
    }
    await context.close();
  }
}

const browser = await chromium.launch({
  executablePath: findChromium(),
  args: FLAGS,
  env: { ...process.env, HOME: profile },
});
try {
  const complaints = [];
  // The browser itself reports each answer of 400 and above; this test asks for one on purpose.
  const expected = /status of 40[01] \((Bad Request|Unauthorized)\)/;
  const watch = (page, name) => {
    page.on("console", (message) => {
      if (message.type() === "error" && !expected.test(message.text())) complaints.push(`${name}: ${message.text()}`);
    });
    page.on("pageerror", (error) => complaints.push(`${name}: ${error}`));
  };
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  watch(page, "1280 px");
  await homePlots(page);
  const box = await completion(page);
  await rangeQuery(page, box);
  await sortedTable(page);
  await zoom(page);
  await tooltip(page);
  await longLegend(page);
  await moreLikeThis(page);
  await loading(page);
  await pictures(page);
  await instantQuery(page);
  await failedQuery(page);
  await anotherDatabase(page);
  await emptyLists(page);
  await viewList(page);
  await keptRules(page);
  await alertPicture(page);
  await noOverflow(page, "1280 px");
  await signInAndOut(page);
  await page.close();
  await screenshots(browser, watch);
  await readmePicture(browser, watch);
  assert.deepEqual(complaints, [], "messages on the browser's console");
  console.log(`page: all well, pictures in ${folder}`);
} finally {
  await browser.close();
  rmSync(profile, { recursive: true, force: true });
}
