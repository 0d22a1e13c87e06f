// The page: a panel for each way to look at the models, chosen by the address after '#'.

import { errorLine, get, recording, setToken } from "./api.js";
import { field, fill, h, select } from "./dom.js";
import { panels as all } from "./panels/index.js";

// A recording answers what some panels ask, and no others.
const panels = Object.fromEntries(Object.entries(all).filter(
  ([, panel]) => !recording || panel.recorded));
const THEME = "foreword-theme";
const nav = document.getElementById("nav");
const main = document.getElementById("panel");
const said = document.getElementById("said");
let models = [];
let runs = []; // folders that are watched
let leave = null; // ends what the panel at hand does

/** Say something to those who hear the page. */
function announce(text) {
  said.textContent = "";
  setTimeout(() => { said.textContent = text; }, 50);
}

// -- light and dark ----------------------------------------------------------------------------------

const themes = ["auto", "light", "dark"];
const button = document.getElementById("theme");

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  localStorage.setItem(THEME, theme);
  button.textContent = { auto: "Theme: auto", light: "Theme: light", dark: "Theme: dark" }[theme];
}
button.addEventListener("click", () => {
  const now = themes.indexOf(localStorage.getItem(THEME) ?? "auto");
  setTheme(themes[(now + 1) % themes.length]);
});
setTheme(themes.includes(localStorage.getItem(THEME)) ? localStorage.getItem(THEME) : "auto");

// -- panels ------------------------------------------------------------------------------------------

/** Return the name of the panel in the address, and what follows it: #sentence?text=... */
function address() {
  const [name, query = ""] = location.hash.slice(1).split("?");
  return { name: name in panels ? name : null, query: new URLSearchParams(query) };
}

function show() {
  const { name, query } = address();
  if (location.hash === "#panel") { main.focus(); return; }
  const panel = name ?? Object.keys(panels).find((n) => !panels[n].needs(models, runs)) ?? "sentence";
  const { title, lead, needs, show: open } = panels[panel];
  leave?.();
  for (const link of nav.querySelectorAll("a")) {
    if (link.dataset.panel === panel) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${title} · Foreword`;
  const root = h("div", { class: `panel ${panel}` });
  fill(main, h("h1", {}, title), lead && h("p", { class: "lead" }, lead), root);
  const wanting = needs(models, runs);
  if (wanting) { fill(root, h("p", { class: "card note" }, wanting)); leave = null; return; }
  const leaving = new AbortController();
  const context = {
    models, runs, query, announce, signal: leaving.signal,
    /** Keep some values in the address, so that it can be kept and shared. */
    keep(values) {
      const now = new URLSearchParams(address().query);
      for (const [key, value] of Object.entries(values)) {
        if (value === null || value === "") now.delete(key);
        else now.set(key, value);
      }
      history.replaceState(null, "", `#${panel}${now.size ? `?${now}` : ""}`);
    },
    /** The text that panels share; context.text = "..." sets it for all. */
    get text() {
      const text = query.get("text") ?? sessionStorage.getItem("foreword-text");
      return recording && !recording.texts.includes(text) ? recording.texts[0] : text;
    },
    set text(value) { sessionStorage.setItem("foreword-text", value); context.keep({ text: value }); },
  };
  if (recording) root.before(texts(context));
  const end = open(root, context);
  leave = () => { leaving.abort(); if (typeof end === "function") end(); };
}

/** Return the choice among the texts of a recording. */
function texts(context) {
  const known = recording.texts.map((text, n) => [n, text]);
  return h("div", { class: "texts" }, select("A text of this page", known,
    recording.texts.indexOf(context.text), (n) => {
      context.text = recording.texts[n];
      show();
    }));
}

function listPanels() {
  fill(nav, Object.entries(panels).map(([name, panel]) => h("a", {
    href: `#${name}`, "data-panel": name, title: panel.needs(models, runs),
    class: panel.needs(models, runs) ? "lacks" : null,
  }, panel.title)));
  const names = models.map((model) => model.id);
  fill(document.getElementById("foot"), h("p", {},
    `${names.length} model${names.length === 1 ? "" : "s"}: `, names.join(", "),
    recording ? ". All was computed when this page was written."
      : ". All is computed by the server of this page; nothing is fetched from anywhere else."));
}

function askForToken(error) {
  const input = h("input", { type: "password", autocomplete: "off", required: true });
  const enter = (event) => {
    event.preventDefault();
    setToken(input.value);
    start();
  };
  fill(main, h("h1", {}, "Token"), errorLine(error),
    h("form", { class: "card controls", on: { submit: enter } },
      field("The token that the server was started with", input),
      h("button", { class: "main" }, "Enter")));
  input.focus();
}

async function start() {
  try {
    models = (await get("/v1/models")).data;
    runs = (await get("/runs")).data;
  } catch (error) {
    if (error.status === 401) askForToken(error);
    else fill(main, h("h1", {}, "Foreword"), errorLine(error));
    return;
  }
  listPanels();
  show();
}

window.addEventListener("hashchange", show);
start();
