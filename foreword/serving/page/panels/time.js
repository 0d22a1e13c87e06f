// The time machine: one text at each checkpoint that a run has kept.

import { errorLine, get, recording } from "../api.js";
import { asked } from "../asked.js";
import { chart } from "../chart.js";
import { field, fill, h, select, settled, slider } from "../dom.js";
import { able, bars, surprise } from "../models.js";
import { inBits, spelled, token, wordsOf } from "../surprise.js";

import { lossLines, sample } from "./watch.js";

export const title = "Time machine";
export const lead = "Move through a run's training: what it made of one text at each checkpoint.";
export const recorded = true;
const EXAMPLE = "The king went to the river, and the people followed him.";
const SLOW = 900; // milliseconds of a checkpoint while it plays

const runsOf = (models, runs) => runs.filter((run) => run.checkpoints?.length
  && models.some((model) => model.id === run.name && able(model, "inspect/text") && !model.reads_source));

export const needs = (models, runs) => (runsOf(models, runs).length ? null
  : "Open a run that predicts tokens: foreword app RUN. Trained with "
    + "--set train.kept_checkpoints=99 it keeps all of them to go back to.");

export function show(root, context) {
  const { models, signal } = context;
  const choices = runsOf(models, context.runs);
  const named = choices.find((run) => run.name === context.query.get("run"));
  let run = named ?? choices.reduce((a, b) => (b.checkpoints.length > a.checkpoints.length ? b : a));
  let text = context.text ?? EXAMPLE;
  let blank = null; // the number of the word that is left out
  let at = 0;
  let history = null;
  let seen = []; // by checkpoint: what was made of the text, as it comes
  let playing = null;
  let isOpen = false; // whether the samples are
  let turn = 0; // of the latest text; answers to earlier ones are not shown

  const area = h("textarea", { rows: 2, maxlength: 2000, on: {
    input: settled(() => {
      text = context.text = area.value.trim();
      blank = null;
      begin();
    }, 500),
  } });
  area.value = text;
  const where = h("div", { class: "whole" });
  const curves = h("div", {});
  const tokens = h("div", {});
  const filled = h("div", {});
  const written = h("div", {});
  const all = h("div", {});
  const wrong = h("div", {});
  root.append(
    h("div", { class: "card controls" },
      choices.length > 1 && select("Run", choices.map((one) => one.name), run.name, (name) => {
        run = choices.find((one) => one.name === name);
        context.keep({ run: name });
        open();
      }),
      !recording && h("div", { class: "whole" }, field("Text", area)), where),
    wrong, h("div", { class: "pair era" }, curves, h("div", { class: "card now" }, tokens)),
    filled, written, all);

  const model = () => models.find((one) => one.id === run.name);
  const steps = () => run.checkpoints;

  /** Ask for a run's curves, then for its text. */
  async function open() {
    history = null;
    blank = null;
    at = steps().length - 1;
    try {
      history = await get(`/runs/${encodeURIComponent(run.name)}`, { signal });
    } catch (error) { fill(wrong, errorLine(error)); }
    place();
    begin();
  }

  /** Show the slider of a run's checkpoints. */
  function place() {
    const shown = (n) => `step ${steps()[n].toLocaleString("en")}`;
    const bar = slider("Checkpoint", {
      min: 0, max: steps().length - 1, step: 1, value: at, shown, change: go,
    });
    const play = h("button", { type: "button", "aria-pressed": "false", on: { click: () => {
      if (playing) return stop();
      if (at === steps().length - 1) go(0, true);
      playing = setInterval(() => (at < steps().length - 1 ? go(at + 1, true) : stop()), SLOW);
      play.setAttribute("aria-pressed", "true");
    } } }, "Play");
    function stop() {
      clearInterval(playing);
      playing = null;
      play.setAttribute("aria-pressed", "false");
    }
    fill(where, h("div", { class: "row" }, h("div", { class: "grow" }, bar),
      steps().length > 1 && play));
  }

  /** Go to a checkpoint. */
  function go(n, moves = false) {
    at = n;
    if (moves) {
      const input = where.querySelector("input");
      input.value = n;
      input.dispatchEvent(new Event("input"));
      return;
    }
    draw();
  }

  /** Ask what each checkpoint makes of the text, the one at hand first. */
  async function begin() {
    const mine = (turn += 1);
    seen = steps().map(() => null);
    fill(wrong);
    draw();
    if (!text) return;
    const order = [at, ...steps().keys()].filter((n, i, list) => list.indexOf(n) === i);
    for (const n of order) {
      try {
        const found = await lookAt(n);
        if (mine !== turn || signal.aborted) return;
        seen[n] = found;
      } catch (error) {
        if (mine !== turn || signal.aborted) return;
        fill(wrong, errorLine(error));
        return;
      }
      draw();
    }
  }

  async function lookAt(n) {
    const name = `${run.name}@${steps()[n]}`;
    const found = { read: (await asked("/inspect/text", { model: name, text, top: 8 })).data[0] };
    if (blanked() !== null) {
      found.fill = (await asked("/fill", { model: name, text: blanked(), top: 8 })).data[0].blanks[0];
    }
    if (able(model(), "completions")) {
      const body = { model: name, prompt: text, max_tokens: 40, seed: 1, temperature: 0.8 };
      found.completion = (await asked("/v1/completions", body)).choices[0].text;
    }
    return found;
  }

  /** Return the text with its blank; null if there is none. */
  function blanked() {
    const word = blank === null ? null : wordsOf(text)[blank];
    return word ? text.slice(0, word.start) + model().blank + text.slice(word.stop) : null;
  }

  // -- what is shown -------------------------------------------------------------------------------

  function draw() {
    const key = document.activeElement?.dataset.key; // of the button that has the focus
    drawCurves();
    drawTokens();
    drawBlank();
    drawWritten();
    drawAll();
    if (key) root.querySelector(`[data-key="${key}"]`)?.focus({ preventScroll: true });
  }

  function drawCurves() {
    const series = history ? lossLines(history) : [];
    if (!series.length) { fill(curves, h("p", { class: "note card" }, "No curve was kept.")); return; }
    const nearest = (x) => steps().reduce((best, s, n) =>
      (Math.abs(s - x) < Math.abs(steps()[best] - x) ? n : best), 0);
    fill(curves, chart({
      title: "Loss, nats per prediction", x: "step", y: "nats", series, height: 300,
      marks: [{ x: steps()[at], label: `step ${steps()[at]}` }], pick: (x) => go(nearest(x), true),
    }));
  }

  function drawTokens() {
    const read = seen[at]?.read;
    const each = seen.map((one, n) => [steps()[n], one?.read.bits_per_byte ?? one?.read.perplexity ?? null]);
    const isBytes = Boolean(read?.bits_per_byte);
    fill(tokens, h("h2", {}, `At step ${steps()[at].toLocaleString("en")}`),
      read ? [
        h("p", { class: "figure" },
          read.bits_per_byte && [h("b", {}, read.bits_per_byte.toFixed(2)), " bits per byte, "],
          "perplexity ", h("b", {}, read.perplexity.toPrecision(4))),
        h("ol", { class: "unders" }, read.tokens.map(token)),
        h("p", { class: "note" }, "Under each token: its surprise in bits."),
      ] : h("p", { class: "note", role: "status" }, text ? "Computing ..." : "Write a text."),
      each.filter((p) => p[1] !== null).length > 1 && chart({
        title: `This text, ${isBytes ? "bits per byte" : "perplexity"}`, x: "step",
        y: isBytes ? "bits" : "", height: 150,
        series: [{ name: "this text", points: each, colour: "var(--hot)" }],
        marks: [{ x: steps()[at] }],
      }));
  }

  function drawBlank() {
    if (!able(model(), "fill")) { fill(filled); return; }
    const candidates = seen[at]?.fill;
    const last = seen.findLast((one) => one?.fill)?.fill ?? [];
    const byStep = last.slice(0, 5).map((best) => ({
      name: best.text.trim() || best.text,
      points: seen.map((one, n) => [steps()[n], one?.fill
        ? one.fill.find((c) => c.text === best.text)?.probability ?? 0 : null]),
    }));
    fill(filled, h("h2", {}, "A word left out"), h("div", { class: "card" },
      h("p", { class: "note" }, "Choose a word, and each checkpoint fills its place."),
      h("div", { class: "row words", role: "group", "aria-label": "Words" },
        wordsOf(text).map((word, n) => h("button", {
          type: "button", "aria-pressed": String(n === blank), "data-key": `word-${n}`,
          on: { click: () => {
            blank = n === blank ? null : n;
            begin();
          } },
        }, word.text))),
      candidates && bars(candidates.map((one) =>
        ({ label: one.text, value: one.probability })), { whole: 1 }),
      byStep.length > 0 && seen.filter((one) => one?.fill).length > 1
        && h("div", { class: "narrowed" }, chart({
        title: "Probability of what the last checkpoint fills in", x: "step", y: "probability",
        series: byStep, marks: [{ x: steps()[at] }], height: 220,
      }))));
  }

  function drawWritten() {
    const logged = (history?.samples ?? []).filter((one) => one.step <= steps()[at]);
    const latest = logged.filter((one) => one.step === logged.at(-1)?.step);
    const own = seen[at]?.completion;
    fill(written, (own !== undefined || latest.length > 0) && h("h2", {}, "What it writes"),
      own !== undefined && h("p", { class: "card prose" }, h("span", { class: "given" }, text), own),
      latest.length > 0 && h("details", { open: isOpen,
        on: { toggle: (event) => { isOpen = event.target.open; } } }, h("summary", {},
        `Samples that training kept at step ${latest[0].step.toLocaleString("en")}`),
      h("div", {}, latest.map(sample))));
  }

  function drawAll() {
    const known = seen.map((one, n) => [n, one?.read]).filter(([, read]) => read);
    if (known.length < 2) { fill(all); return; }
    const names = known[0][1].tokens.map(spelled);
    fill(all, h("h2", {}, "When each token was learned"),
      h("div", { class: "card scroll", tabindex: 0, role: "region", "aria-label": "Surprise by step" },
        h("table", { class: "plain learned" },
          h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "step"),
            names.map((name) => h("th", { scope: "col" }, name)))),
          h("tbody", {}, known.map(([n, read]) => h("tr", { class: n === at ? "here" : null },
            h("th", { scope: "row" }, h("button", { type: "button", class: "quiet", "data-key": `step-${n}`,
              "aria-current": n === at ? "true" : null, on: { click: () => go(n, true) } },
            steps()[n].toLocaleString("en"))),
            read.tokens.map((one) => h("td", { class: "warm", style: surprise(one.nats) },
              inBits(one.nats)))))))),
      h("p", { class: "note" }, "Bits of surprise at each token, a row for each checkpoint."));
  }

  open();
  return () => clearInterval(playing);
}
