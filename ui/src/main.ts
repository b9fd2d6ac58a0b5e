// The page's frame: the view that the address names, the theme, the version.

import { buildInfo, databases } from "./api.ts";
import { offerDatabases } from "./database.ts";
import { element } from "./dom.ts";
import { HomeView } from "./home.ts";
import { session, signInForm, signOut } from "./sign_in.ts";
import { startTheme } from "./theme.ts";
import type { View } from "./view.ts";

const VIEWS: Record<string, { title: string; make: () => Promise<View> }> = {
  home: { title: "Thalweg", make: async () => new HomeView() },
  // Loaded when first asked for: the editor is most of the page's code.
  explore: { title: "Explore · Thalweg", make: async () => new (await import("./explore.ts")).ExploreView() },
  targets: { title: "Targets · Thalweg", make: async () => (await import("./targets.ts")).targetsView() },
  discovery: { title: "Service discovery · Thalweg", make: async () => (await import("./targets.ts")).discoveryView() },
  rules: { title: "Rules · Thalweg", make: async () => (await import("./rules.ts")).rulesView() },
  alerts: { title: "Alerts · Thalweg", make: async () => (await import("./rules.ts")).alertsView() },
  views: { title: "Materialised views · Thalweg", make: async () => (await import("./views.ts")).viewsView() },
};

function byId<T extends HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`index.html has no element #${id}`);
  return found as T;
}

let current: { name: string; view: View } | null = null;
let turn = 0;

async function route(): Promise<void> {
  turn += 1;
  const mine = turn;
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const name = path in VIEWS ? path : "home";
  const entry = VIEWS[name];
  if (!entry) return;
  if (current?.name !== name) {
    const view = await entry.make();
    if (mine !== turn) return view.destroy();
    current?.view.destroy();
    current = { name, view };
    byId("view").replaceChildren(view.root);
    document.title = entry.title;
    for (const link of document.querySelectorAll<HTMLAnchorElement>("nav a")) {
      if (link.dataset["view"] === name) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }
  current.view.update(new URLSearchParams(query));
}

function routeOrSay(): void {
  route().catch((error: unknown) => {
    const text = `The page could not be shown: ${String(error)} Reload it; it may belong to an older version of the server.`;
    byId("view").replaceChildren(element("p", { class: "error", text, attributes: { role: "alert" } }));
  });
}

async function showVersion(): Promise<void> {
  const { data } = await buildInfo();
  byId("version").textContent = data.applicationVersion ? `v${data.applicationVersion}` : "";
}

async function showDatabases(): Promise<void> {
  const { data } = await databases();
  offerDatabases(byId<HTMLSelectElement>("database"), data.map(({ name }) => name));
}

function start(account: string | null): void {
  const button = byId<HTMLButtonElement>("sign-out");
  button.hidden = account === null;
  button.title = account === null ? "" : `Sign ${account} out`;
  button.addEventListener("click", () => void signOut());
  addEventListener("hashchange", routeOrSay);
  routeOrSay();
  // Only decoration: a server that does not answer is reported by the view itself.
  showVersion().catch(() => undefined);
  showDatabases().catch(() => undefined);
}

startTheme(byId<HTMLButtonElement>("theme"));
session()
  .then(({ required, account, oidc }) => {
    if (required && account === null) byId("view").replaceChildren(signInForm(oidc === true));
    else start(account);
  })
  .catch(() => start(null));
