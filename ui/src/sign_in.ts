// The sign-in form, and signing out. The session is a cookie that scripts cannot read; it counts together with PAGE_HEADER alone, which pages
// of other origins cannot send.

import { element } from "./dom.ts";

/** Goes with every request of the page. */
export const PAGE_HEADER = { "X-Thalweg-Page": "1" };

const PATH = "api/v1/session";

interface Session {
  required: boolean;
  account: string | null;
  /** The page can sign in at an identity provider, too. */
  oidc?: boolean;
}

/** Who has signed in. A server that does not tell, because it is starting, say, asks nobody to. */
export async function session(): Promise<Session> {
  try {
    const response = await fetch(PATH, { headers: PAGE_HEADER });
    const { data } = (await response.json()) as { data?: Session };
    return data ?? { required: false, account: null };
  } catch {
    return { required: false, account: null };
  }
}

async function send(user: string, password: string): Promise<string | null> {
  const headers = { ...PAGE_HEADER, "Content-Type": "application/json" };
  const response = await fetch(PATH, { method: "POST", headers, body: JSON.stringify({ user, password }) });
  if (response.ok) return null;
  const { error } = (await response.json()) as { error?: string };
  return error ?? response.statusText;
}

/** Ends the session; the form is shown again. */
export async function signOut(): Promise<void> {
  await fetch(PATH, { method: "DELETE", headers: PAGE_HEADER });
  location.reload();
}

function input(label: string, name: string, type: string, autocomplete: string): [HTMLLabelElement, HTMLInputElement] {
  const box = element("input", { attributes: { name, type, autocomplete, autocapitalize: "off", spellcheck: "false" } });
  return [element("label", { class: "field" }, element("span", { text: label }), box), box];
}

/** The form, in place of a view. */
export function signInForm(hasProvider: boolean): HTMLElement {
  const [userField, user] = input("User", "user", "text", "username");
  const [passwordField, password] = input("Password or token", "password", "password", "current-password");
  const button = element("button", { class: "primary", text: "Sign in", attributes: { type: "submit" } });
  const message = element("p", { class: "error", attributes: { role: "alert", hidden: "" } });
  const submit = async (): Promise<void> => {
    button.disabled = true;
    const error = await send(user.value, password.value).catch(() => "The server does not answer. Is it running?");
    if (error === null) return location.reload();
    message.textContent = error;
    message.hidden = false;
    button.disabled = false;
    password.select();
  };
  const on = {
    submit: (event: SubmitEvent) => {
      event.preventDefault();
      void submit();
    },
  };
  const title = element("h1", { text: "Sign in" });
  const provider = element("a", { text: "Sign in with single sign-on", attributes: { href: `${PATH}/oidc` } });
  return element("form", { class: "sign-in", on }, title, userField, passwordField, button, message, ...(hasProvider ? [provider] : []));
}
