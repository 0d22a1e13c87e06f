// Runs and comparisons while they are trained: curves, samples and speed, live.

import { errorLine, get, post } from "../api.js";
import { chart, short } from "../chart.js";
import { fill, h } from "../dom.js";

export const title = "Watch";
export const lead = "Training as it happens: loss, speed and samples, and what a comparison has so far.";
const OFTEN = 2000; // milliseconds between two looks at what is training
const SELDOM = 10000; // and at what is not
const FEW = 2; // folders that are shown whole; of more, those that are done are folded

export const needs = (models, runs) => (runs.length ? null
  : "Open the folder of a run or of a comparison, trained or in training: foreword app RUN");

export function show(root, context) {
  const isLive = (run) => Number(run.state === "training"); // these come first
  const runs = [...context.runs].sort((a, b) => isLive(b) - isLive(a));
  const cards = runs.map((run) => card(run, context));
  root.append(...cards.map((one) => one.element));
  let timer = null;
  async function look() {
    let moves = false;
    for (const one of cards) moves = (await one.look()) || moves;
    if (!context.signal.aborted) timer = setTimeout(look, moves ? OFTEN : SELDOM);
  }
  look();
  return () => clearTimeout(timer);
}

/** Return a run's section, and what looks again; the answer is whether it may change. */
function card(run, { announce, signal, runs }) {
  const status = h("div", {}), wrong = h("div", {}), body = h("div", {}), folded = h("summary", {});
  const more = h("details", { class: "chapter", open: runs.length <= FEW }, folded, body);
  const button = h("button", { type: "button", hidden: true, on: { click: act } });
  const element = h("section", { class: "watched", "aria-label": run.name },
    h("div", { class: "row" }, h("h2", { class: "grow" }, run.name), button), status, wrong, more);
  const path = `/runs/${encodeURIComponent(run.name)}`;
  let state = null, drawn = null, wasBusy = false;

  async function act() {
    const verb = button.dataset.verb;
    button.disabled = true;
    fill(wrong);
    try {
      await post(`/runs/${verb}`, { model: run.name });
      announce(verb === "stop" ? `${run.name} saves and stops` : `${run.name} goes on`);
      await look();
    } catch (error) { fill(wrong, errorLine(error)); }
    button.disabled = false;
  }

  async function look() {
    let now;
    try {
      now = await get(path, { signal });
    } catch (error) {
      fill(wrong, errorLine(error));
      return false;
    }
    if (state !== null && state !== now.state) announce(`${run.name}: ${now.state}`);
    state = now.state;
    const verb = now.state === "training" ? "stop" : now.state === "stopped" ? "resume" : null;
    button.hidden = !now.can_control || !verb;
    if (verb) {
      button.dataset.verb = verb;
      button.textContent = verb === "stop" ? "Save and stop" : "Resume";
    }
    fill(status, ...statusOf(now));
    const isBusy = now.state === "training" || now.state === "starting";
    if (isBusy && !wasBusy) more.open = true;
    wasBusy = isBusy;
    const loss = now.heldout && latest(now.heldout, "loss");
    const inside = now.kind === "comparison" ? "Curves and tables" : "Curves and samples";
    fill(folded, [inside, loss && `held-out loss ${loss}`].filter(Boolean).join(" · "));
    if (now.kind === "tuning") more.replaceWith(body);
    const content = JSON.stringify([now.train, now.heldout, now.samples, now.cells, now.tables]);
    if (content !== drawn) { // what is open or under the pointer stays where nothing is new
      const open = [...body.querySelectorAll("details")].map((one) => one.open);
      fill(body, { run: runOf, comparison: comparisonOf, tuning: tunedOf }[now.kind](now));
      body.querySelectorAll("details").forEach((one, n) => { one.open = open[n] ?? one.open; });
      drawn = content;
    }
    return isBusy || now.tunings?.length > 0;
  }
  return { element, look };
}

const WORDS = { training: "in training", starting: "starting", stopped: "stopped", finished: "finished",
  damaged: "damaged" };

function statusOf(now) {
  if (now.kind === "tuning") return now.tunings.map(tuning);
  const percent = Math.floor(100 * now.share);
  const done = now.kind !== "run" ? `${now.done} of ${now.planned} trainings`
    : now.budget && `step ${(now.step ?? 0).toLocaleString("en")}`; // what is counted has no steps
  const spent = now.state === "finished" ? now.budget
    : now.budget ? `${percent} % of ${now.budget}` : `${percent} %`;
  return [
    h("p", { class: "note" }, now.description),
    h("div", { class: "row" }, h("span", { class: `pill ${now.state}` }, WORDS[now.state]),
      h("span", { class: "note" }, [done, spent, left(now)].filter(Boolean).join(" · "))),
    now.failed && h("p", { class: "error" },
      `Resuming ended with status ${now.failed}; the terminal of the server says why.`),
    now.state !== "finished"
      && h("progress", { max: 100, value: percent, "aria-label": "share of the budget" }),
    now.tunings?.map(tuning),
  ];
}

/** Return how far a fine-tuning has come; its total is 0 where it is not known. */
function tuning({ name, stage, done, total }) {
  const share = total ? `${Math.floor((100 * done) / total)} %` : done.toLocaleString("en");
  return [h("div", { class: "row" }, h("span", { class: "pill training" }, "fine-tuning"),
    h("b", {}, name), h("span", { class: "note" }, `${stage} · ${share}`)),
  h("progress", { max: total || 1, value: total ? done : 0, "aria-label": `share of ${name}` })];
}

/** Return about how long a run still takes. */
function left(now) {
  const seconds = now.train?.seconds.at(-1);
  if (now.state !== "training" || !seconds || !now.share) return null;
  const more = (seconds / now.share) * (1 - now.share);
  return more > 5400 ? `about ${(more / 3600).toFixed(1)} h left`
    : more > 90 ? `about ${Math.round(more / 60)} min left` : `about ${Math.round(more)} s left`;
}

const tunedOf = ({ state }) => state !== "training" && h("p", { class: "note card" },
  state === "finished" ? "The fine-tuning is done; open the page again to try the model."
    : "The fine-tuning ended before it was done; the same command goes on.");

const points = (curve, column) => curve.step.map((step, n) => [step, curve[column][n]]);

/** Return the last value of a held-out curve; an upper bound says so. */
function latest(curve, column) {
  const value = curve[column].at(-1)?.toPrecision(4);
  return value && curve.is_bound.at(-1) ? `at most ${value}` : value;
}

/** Return the losses of a run as lines of a chart. */
export const lossLines = ({ train, heldout }) => [
  { name: "training", points: points(train, "loss"), colour: "var(--muted)" },
  { name: heldout.is_bound.at(-1) ? "held-out, at most" : "held-out", points: points(heldout, "loss"),
    colour: "var(--cell0)" },
].filter((one) => one.points.length);

function runOf(now) {
  if (!now.train.step.length && !now.heldout.step.length) {
    return h("p", { class: "note card" }, "There is no record of training yet.");
  }
  const speed = now.train.tokens_per_second.at(-1);
  return [
    h("div", { class: "tiles" },
      tile(now.train.loss.at(-1)?.toPrecision(4), "training loss"),
      tile(latest(now.heldout, "loss"), "held-out loss"),
      tile(latest(now.heldout, "bits_per_byte"), "bits per byte"),
      tile(speed && short(speed), "tokens a second"),
      tile(now.train.lr.at(-1)?.toExponential(2), "learning rate")),
    (now.train.step.length > 1 || now.heldout.step.length > 1) && h("div", { class: "pair" },
      chart({ title: "Loss, nats per prediction", x: "step", y: "nats", series: lossLines(now) }),
      chart({ title: "Speed, tokens a second", x: "step", y: "tokens", series: [
        { name: "speed", points: points(now.train, "tokens_per_second"), colour: "var(--cell2)" }] })),
    samples(now),
  ];
}

const tile = (value, name) => value !== undefined && value !== null
  && h("div", { class: "tile" }, h("b", {}, value), h("span", {}, name));

/** Return a sample that training has kept: what follows its beginning, or stands for it. What filled
 *  blanks is marked in the text, whose rest is the prompt's. */
export function sample({ prompt, text }) {
  const parts = text.split(/«([^»]*)»/);
  if (/\[MASK\]/.test(prompt) && parts.length > 1) {
    return h("p", { class: "prose" }, parts.map((part, n) => (n % 2 ? h("mark", {}, part) : part)));
  }
  return h("p", { class: "prose" }, h("span", { class: "given" }, prompt),
    /\[MASK\]|<extra_id_/.test(prompt) ? ` → ${text}` : text);
}

function samples({ samples: all, budget }) {
  const steps = [...new Set(all.map((one) => one.step))].reverse();
  const at = (step) => all.filter((one) => one.step === step).map(sample);
  return steps.length > 0 && [
    h("h3", {}, `What it writes${budget ? ` at step ${steps[0].toLocaleString("en")}` : ""}`),
    h("div", { class: "card" }, at(steps[0])),
    steps.length > 1 && h("details", {}, h("summary", {}, "Earlier"), h("div", {},
      steps.slice(1).map((step) => [h("h4", {}, `Step ${step.toLocaleString("en")}`), at(step)]))),
  ];
}

function comparisonOf(now) {
  const curves = now.cells.map((cell) => ({
    name: cell.heldout.is_bound.at(-1) ? `${cell.name}, at most` : cell.name,
    points: points(cell.heldout, "loss"),
  })).filter((one) => one.points.length);
  return [
    curves.length > 0 && h("div", { class: "pair" }, chart({
      title: "Held-out loss of each run", x: "step", y: "nats", series: curves, height: 300,
    })),
    h("div", { class: "scroll card", tabindex: 0, role: "region", "aria-label": "Runs" },
      h("table", { class: "plain" },
        h("caption", {}, "Runs"),
        h("thead", {}, h("tr", {}, ["run", "state", "done", "step", "held-out loss", "bits per byte"]
          .map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, now.cells.map((cell) => h("tr", {}, h("th", { scope: "row" }, cell.name),
          h("td", {}, h("span", { class: `pill ${cell.state}` }, WORDS[cell.state]),
            cell.error && h("span", { class: "error" }, ` ${cell.error}`)),
          h("td", { class: "n" }, `${Math.floor(100 * cell.share)} %`),
          h("td", { class: "n" }, (cell.step ?? 0).toLocaleString("en")),
          h("td", { class: "n" }, latest(cell.heldout, "loss") ?? "–"),
          h("td", { class: "n" }, latest(cell.heldout, "bits_per_byte") ?? "–")))))),
    now.tables.map((table) => h("details", {}, h("summary", {}, table.title),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": table.title },
        h("table", { class: "plain" },
          h("thead", {}, h("tr", {}, table.columns.map((c) => h("th", { scope: "col" }, c)))),
          h("tbody", {}, table.rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell))))))))),
  ];
}
