// How a text is written: the probabilities of the next token, beams, and translations.

import { errorLine, post } from "../api.js";
import { chooseModel, field, fill, h, settled, slider, views } from "../dom.js";
import { heatTable } from "../heat.js";
import { able, bars, bits, percent, surprise } from "../models.js";
import { sampled } from "../sampling.js";
import { beamTree } from "../tree.js";

export const title = "Generate";
export const lead = "How a text is written, token by token: what could come next, what the settings of "
  + "sampling leave of it, and what beam search keeps.";
export const needs = (models) =>
  (models.some((model) => able(model, "inspect/next")) ? null
    : "Needs a model that writes from left to right: an n-gram, recurrent, causal or T5 run, or a "
      + "translator. Masked diffusion writes in any order: the panel Sentence shows how it fills "
      + "blanks, and the time machine what it writes.");

const PROMPT = "The city is the capital of";
const SHOWN = 16; // bars
const PAUSE = 350; // milliseconds between two tokens that are played

const promptName = (models) => (models.every((model) => model.reads_source) ? "Source"
  : models.some((model) => model.reads_source) ? "Prompt, or source of a model that reads one" : "Prompt");

// T5 reads a source too, but fills the blanks of a text.
const translates = (model) => able(model, "inspect/alignment") && model.reads_source;

export function show(root, context) {
  const aligned = context.models.some(translates);
  const { nodes, end } = views(context, [
    ["next", "Next token", (view) => nextToken(view, context)],
    ["beam", "Beam search", (view) => beams(view, context)],
    ...(aligned ? [["translate", "Translation", (view) => translation(view, context)]] : []),
  ]);
  root.append(...nodes);
  return end;
}

// -- the next token ----------------------------------------------------------------------------------

function nextToken(root, context) {
  const models = context.models.filter((model) => able(model, "inspect/next"));
  const how = { temperature: 1, topK: 0, topP: 1 };
  let tokens = [], answer = null, playing = null, asked = null, text = "";

  const [choice, first] = chooseModel(models, context, (chosen) => { model = chosen; restart(); });
  let model = first;
  const prompt = h("textarea", { rows: 2, spellcheck: "false", maxlength: 4000,
    on: { input: settled(restart, 400) } });
  prompt.value = context.text || PROMPT;
  const seed = h("input", { type: "number", min: 0, max: 999999, on: { change: () => ask() } });
  seed.value = 1;
  const button = (label, click, kind) =>
    h("button", { type: "button", class: kind, on: { click } }, label);
  const play = button("Play", () => (playing ? pause() : start()));
  const next = button("Draw a token", step, "main");
  const back = button("Back", () => { tokens = tokens.slice(0, -1); ask(); });
  const written = h("p", { class: "written", "aria-label": "The text so far" });
  const list = h("div", { class: "next" });
  const note = h("p", { class: "note", role: "status" });

  const change = (key) => (value) => { how[key] = value; draw(); later(); };
  const later = settled(() => ask(), 300); // what is drawn depends on the settings
  root.append(
    h("div", { class: "card controls" },
      h("div", { class: "whole" }, field(promptName(models), prompt)),
      choice,
      slider("Temperature", { min: 0, max: 2, step: 0.05, value: how.temperature,
        shown: (v) => (v ? v.toFixed(2) : "0, the likeliest"), change: change("temperature") }),
      slider("Top-k", { min: 0, max: 100, step: 1, value: how.topK,
        shown: (v) => (v ? String(v) : "all"), change: change("topK") }),
      slider("Top-p", { min: 0.05, max: 1, step: 0.01, value: how.topP,
        shown: (v) => v.toFixed(2), change: change("topP") }),
      field("Seed of the draws", seed)),
    h("div", { class: "split" },
      h("section", { class: "card", "aria-label": "Text" }, written,
        h("div", { class: "row" }, next, play, back, button("Start over", restart)), note),
      h("section", { class: "card", "aria-label": "Next token" }, list)));

  /** Ask what follows the tokens so far. */
  async function ask() {
    asked?.abort();
    asked = new AbortController();
    const body = { model: model.id, text: prompt.value, tokens: tokens.map((t) => t.id),
      temperature: how.temperature, top_k: how.topK, top_p: how.topP, top: 128,
      seed: Math.max(0, Math.round(Number(seed.value) || 0)) };
    try {
      const signal = AbortSignal.any([asked.signal, context.signal]);
      const { data } = await post("/inspect/next", body, { signal });
      [answer] = data;
      text = answer.text;
      draw();
      return true;
    } catch (error) {
      if (error.name === "AbortError") return false;
      answer = null;
      pause();
      fill(list, errorLine(error));
      return false;
    }
  }

  /** Draw text and bars; the sliders move these without asking again. */
  function draw() {
    fill(written, h("span", { class: "from" }, prompt.value), tokens.map((token, n) =>
      h("button", { type: "button", class: "token", style: surprise(token.nats),
        "aria-label": `${token.token}, ${bits(token.nats).toFixed(1)} bits; go back to it`,
        on: { click: () => { tokens = tokens.slice(0, n + 1); ask(); } } }, piece(token))));
    back.disabled = !tokens.length;
    if (!answer) return;
    const { p, kept, other } = sampled(answer.best.map((b) => b.nats), answer.rest, how);
    const rows = answer.best.slice(0, SHOWN).map((one, n) => ({
      label: one.is_end ? "⏎ the end" : one.token, value: p[n], faint: !p[n],
      isRight: one.id === answer.drawn.id, note: p[n] ? percent(p[n]) : `(${percent(Math.exp(one.nats))})`,
      choose: () => add(one),
    }));
    const unseen = other + p.slice(SHOWN).reduce((a, b) => a + b, 0);
    fill(list, h("h2", {}, "Next token"), bars(rows, { whole: Math.max(...p, 1e-9) }),
      h("p", { class: "note" }, `${kept.toLocaleString("en")} token${kept === 1 ? "" : "s"} may be `
        + `drawn; those not shown have ${percent(unseen)} together. The model's entropy is `
        + `${(answer.entropy / Math.LN2).toFixed(1)} bits. Green is what this seed draws.`));
    const isOver = tokens.at(-1)?.is_end || answer.room < 1;
    next.disabled = play.disabled = Boolean(isOver);
    note.textContent = tokens.at(-1)?.is_end ? "The model has ended the text." : "";
  }

  const piece = (token) => (token.is_end ? " ⏎"
    : token.begins_word && !/^\s/.test(token.text) && /^[\p{L}\p{N}]/u.test(token.text)
      ? ` ${token.text}` : token.text);

  function add(token) {
    if (tokens.at(-1)?.is_end) return undefined;
    tokens = [...tokens, token];
    if (token.is_end) { pause(); draw(); return false; }
    return ask();
  }

  async function step() {
    return answer ? add(answer.drawn) : false;
  }

  async function start() {
    playing = true;
    play.textContent = "Pause";
    while (playing && !context.signal.aborted && await step()) {
      await new Promise((resolve) => { setTimeout(resolve, PAUSE); });
    }
    pause();
    context.announce(text);
  }

  function pause() {
    playing = null;
    play.textContent = "Play";
  }

  function restart() {
    pause();
    tokens = [];
    context.text = prompt.value;
    ask();
  }

  ask();
  return () => { pause(); asked?.abort(); };
}

// -- beam search -------------------------------------------------------------------------------------

function beams(root, context) {
  const models = context.models.filter((model) => able(model, "inspect/beam"));
  const how = { beams: 4, max_tokens: 8, length_penalty: 1 };
  const [choice, first] = chooseModel(models, context, (chosen) => { model = chosen; ask(); });
  let model = first, asked = null;
  const prompt = h("textarea", { rows: 2, spellcheck: "false", maxlength: 4000 });
  prompt.value = context.text || PROMPT;
  const result = h("div", {});
  const ask = settled(async () => {
    asked?.abort();
    asked = new AbortController();
    context.text = prompt.value;
    result.classList.add("busy");
    try {
      const body = { model: model.id, text: prompt.value, ...how };
      const signal = AbortSignal.any([asked.signal, context.signal]);
      const { data } = await post("/inspect/beam", body, { signal });
      fill(result, beamTree(data[0]), ranking(data[0].texts, how));
      context.announce(`The best text: ${data[0].texts[0].text}`);
    } catch (error) {
      if (error.name === "AbortError") return;
      fill(result, errorLine(error));
    }
    result.classList.remove("busy");
  }, 200);
  prompt.addEventListener("input", ask);
  const change = (key) => (value) => { how[key] = value; ask(); };
  root.append(h("div", { class: "card controls" },
    h("div", { class: "whole" }, field(promptName(models), prompt)),
    choice,
    slider("Beams", { min: 1, max: 8, step: 1, value: how.beams, change: change("beams") }),
    slider("Most tokens", { min: 1, max: 24, step: 1, value: how.max_tokens,
      change: change("max_tokens") }),
    slider("Length penalty", { min: 0, max: 2, step: 0.1, value: how.length_penalty,
      shown: (v) => v.toFixed(1), change: change("length_penalty") })),
  result);
  ask();
}

function ranking(texts, how) {
  return h("section", { class: "card" }, h("h2", {}, "What it found, the best first"),
    h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "text"),
      ["score", "bits", "ended by"].map((name) => h("th", { scope: "col", class: "n" }, name)))),
    h("tbody", {}, texts.map((one) => h("tr", {}, h("td", { class: "prose" }, one.text),
      [["score", one.score.toFixed(3)], ["bits", bits(one.nats).toFixed(1)],
        ["ended by", one.stopped === "end" ? "itself" : "the limit"]].map(([name, value]) =>
        h("td", { class: "n", "data-name": name }, value)))))),
    h("p", { class: "note" }, "The score is the log-probability in nats over the number of tokens to "
      + `the power of ${how.length_penalty}.`));
}

// -- translation -------------------------------------------------------------------------------------

function translation(root, context) {
  const models = context.models.filter(translates);
  const [choice, first] = chooseModel(models, context, (chosen) => { model = chosen; ask(); });
  let model = first;
  const source = h("textarea", { rows: 2, spellcheck: "false", maxlength: 2000 });
  source.value = context.text || "A man is sitting on a bench.";
  const target = h("textarea", { rows: 2, spellcheck: "false", maxlength: 2000 });
  const layer = h("input", { type: "number", min: 1, max: 99, placeholder: "last" });
  const result = h("div", {});
  const ask = settled(async () => {
    context.text = source.value;
    const body = { model: model.id, text: source.value };
    if (target.value.trim()) body.target = target.value;
    if (layer.value) body.layer = Number(layer.value);
    try {
      const { data: [one] } = await post("/inspect/alignment", body, context);
      fill(result, h("section", { class: "card" }, h("h2", {}, "Target"),
        h("p", { class: "written" }, one.text || "(an empty text)")),
      h("section", { class: "card" }, h("h2", {}, "Alignment"),
        heatTable({ rows: one.target, columns: one.source, weights: one.weights,
          title: "Which word of the source each word of the target attends to" }),
        h("p", { class: "note" }, `${one.what}; each row sums to 1.`)));
      context.announce(`Translated: ${one.text}`);
    } catch (error) {
      if (error.name !== "AbortError") fill(result, errorLine(error));
    }
  }, 400);
  for (const input of [source, target, layer]) input.addEventListener("input", ask);
  root.append(h("div", { class: "card controls" },
    h("div", { class: "whole" }, field("Source", source)),
    h("div", { class: "whole" }, field("Target; left empty, the model's own", target)), choice,
    field("Layer of the decoder", layer)), result);
  ask();
}
