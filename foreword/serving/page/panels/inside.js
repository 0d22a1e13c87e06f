// What is inside of a model: attention, the layers' predictions, vectors of words, counts, pieces.

import { errorLine, post, recording } from "../api.js";
import { chart } from "../chart.js";
import { chooseModel, field, fill, h, select, settled, views } from "../dom.js";
import { heatPicture, heatTable } from "../heat.js";
import { able, bars, bits, percent, surprise } from "../models.js";

export const title = "Look inside";
export const lead = "What a model does with a text between reading it and saying something.";
export const needs = (models) => (VIEWS.some(([, path]) => models.some((m) => able(m, path))) ? null
  : "Needs a pretrained run: an n-gram, recurrent, causal, masked or T5 one.");

export const recorded = true;

const TEXT = "I record the record.";
const VIEWS = [
  ["attention", "inspect/attention", "Attention", attention],
  ["layers", "inspect/lens", "Layers", layers],
  ["words", "inspect/word", "Words", words],
  ["counts", "inspect/counts", "Counts", counts],
  ["pieces", "inspect/pieces", "Pieces", pieces],
];

export function show(root, context) {
  const open = VIEWS.filter(([, path]) => context.models.some((model) => able(model, path)));
  const { nodes, end } = views(context, open.map(([name, path, label, build]) =>
    [name, label, (view) => looking(view, context, path, build)]));
  root.append(...nodes);
  return end;
}

/** Build what all views have: a model, a text, and what the server says of them.
 *  build(result, ask, context) returns draw(row, text, model); or {draw, body, controls}. */
function looking(root, context, path, build) {
  const models = context.models.filter((model) => able(model, path));
  const [choice, first] = chooseModel(models, context, (chosen) => { model = chosen; ask(); });
  let model = first, asked = null;
  const input = h("textarea", { rows: 2, spellcheck: "false", maxlength: 2000,
    on: { input: settled(() => { context.text = input.value; ask(); }, 400) } });
  input.value = context.text || TEXT;
  const result = h("div", { class: "stack" });
  const ask = async () => {
    asked?.abort();
    asked = new AbortController();
    const signal = AbortSignal.any([asked.signal, context.signal]);
    result.classList.add("busy");
    try {
      const body = { model: model.id, text: input.value, ...view.body(input.value) };
      const { data } = await post(`/${path}`, body, { signal });
      view.draw(data[0], input.value, model);
    } catch (error) {
      if (error.name === "AbortError") return;
      fill(result, errorLine(error));
    }
    result.classList.remove("busy");
  };
  const view = { body: () => ({}), controls: [], ...build(result, ask, context, () => model) };
  root.append(h("div", { class: "card controls text" }, !recording && field("Text", input), choice,
    view.controls), result);
  ask();
  return () => asked?.abort();
}

// -- attention ---------------------------------------------------------------------------------------

function attention(result) {
  let chosen = [0, 0];
  const draw = (row) => {
    const { layers: maps, tokens } = row;
    chosen = [Math.min(chosen[0], maps.length - 1), Math.min(chosen[1], maps[0].length - 1)];
    const large = h("section", { class: "card" });
    const buttons = maps.map((heads, layer) => heads.map((weights, head) => h("button", {
      type: "button", class: "map", "aria-label": `Layer ${layer + row.first}, head ${head + 1}`,
      on: { click: () => { chosen = [layer, head]; zoom(); } },
    }, heatPicture(weights))));
    const zoom = () => {
      const [layer, head] = chosen, weights = maps[layer][head];
      buttons.flat().forEach((b) => b.setAttribute("aria-pressed", "false"));
      buttons[layer][head].setAttribute("aria-pressed", "true");
      const line = h("p", { class: "tokens" });
      const point = (n) => fill(line, tokens.map((token, k) => h("span", {
        class: `token${k === n ? " at" : ""}`, style: { "--heat": Math.sqrt(weights[n][k]) },
        title: percent(weights[n][k]) }, token)).flatMap((span) => [span, " "]));
      point(tokens.length - 1);
      fill(large, h("h2", {}, `Layer ${layer + row.first}, head ${head + 1}`),
        h("p", { class: "note" }, "The marked token attends to the warm ones; point at a row to mark "
          + "another. Each row of the table sums to 1."), line,
        heatTable({ rows: tokens, columns: tokens, weights, point,
          title: `Attention of layer ${layer + row.first}, head ${head + 1}` }));
    };
    fill(result, h("div", { class: "split" }, h("section", { class: "card" }, h("h2", {}, "All heads"),
      h("p", { class: "note" }, "A row for each layer, a picture for each head: its rows attend, its "
        + "columns are attended to. Weights show what is mixed, not what decides."),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "All heads" },
        h("div", { class: "maps" }, buttons.map((heads, layer) => h("div", { class: "row" },
          h("span", { class: "note" }, `layer ${layer + row.first}`), heads))))), large));
    zoom();
  };
  return { draw };
}

// -- layers ------------------------------------------------------------------------------------------

function layers(result) {
  let column = null;
  const draw = (row, text, model) => {
    const tokens = row.tokens.filter((token) => token.layers.length);
    const count = tokens[0]?.layers.length ?? 0;
    column = Math.min(column ?? tokens.length - 1, tokens.length - 1);
    const detail = h("div", { class: "split" });
    const name = (n) => (n ? `layer ${n}` : "embedding");
    const point = (n, layer) => {
      column = n;
      const token = tokens[n], shown = token.is_end ? "⏎" : token.token;
      fill(detail, chart({
        title: `Surprise at “${shown}” after each layer`, y: "bits",
        x: { label: "layer", names: token.layers.map((_, k) => String(k)) },
        series: [{ name: shown, points: token.layers.map((one, k) => [k, bits(one.nats)]) }],
        marks: [{ x: layer }], height: 260, pick: (x) => point(n, x),
      }), h("section", { class: "card" }, h("h2", {}, `In place of “${shown}” after ${name(layer)}`),
        bars(token.layers[layer].best.map((one) => ({ label: one.token, value: Math.exp(one.nats),
          isRight: one.id === token.id })), { whole: 1 })));
    };
    const table = h("table", { class: "heat lens" },
      h("caption", { class: "heard" }, "The likeliest token after each layer, in place of each token"),
      h("thead", {}, h("tr", {}, h("td", {}), tokens.map((token) =>
        h("th", { scope: "col" }, h("span", {}, token.is_end ? "⏎" : token.token))))),
      h("tbody", {}, Array.from({ length: count }, (_, k) => count - 1 - k).map((layer) =>
        h("tr", {}, h("th", { scope: "row" }, name(layer)), tokens.map((token, n) => {
          const [best] = token.layers[layer].best;
          return h("td", { style: { "--w": 0.7 * Math.exp(best.nats) },
            class: best.id === token.id ? "right" : null },
          h("button", { type: "button", title: percent(Math.exp(best.nats)),
            on: { click: () => point(n, layer), focus: () => point(n, layer) } }, best.token));
        })))));
    fill(result, h("section", { class: "card" }, h("h2", {}, "What each layer would say"),
      h("p", { class: "note" }, `The state after each layer of ${model.id}, read by the head of the last `
        + `(logit lens). Each token is given ${row.given}. Bold: the token that stands there.`),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Layers" }, table)), detail);
    if (tokens.length) point(column, count - 1);
  };
  return { draw, body: () => ({ top: 8 }) };
}

// -- words -------------------------------------------------------------------------------------------

function words(result, ask, context, model) {
  let which = null; // the place of the word among those of the text
  const others = h("textarea", { rows: 2, spellcheck: "false", maxlength: 4000,
    placeholder: "one a line", on: { input: settled(() => ask(), 500) } });
  let layer = null, seen = null;
  const spots = (text) => [...text.matchAll(/[\p{L}\p{N}\p{M}'’]+/gu)].map((match) => {
    const start = [...text.slice(0, match.index)].length;
    return { word: match[0], start, stop: start + [...match[0]].length };
  });
  const chosen = (text) => {
    const all = spots(text);
    if (text !== seen) { which = null; seen = text; }
    which = Math.min(which ?? Math.max(0, all.length - 1), Math.max(0, all.length - 1));
    return all[which] ?? { start: 0, stop: 1 };
  };
  const sentences = () => others.value.split("\n").filter((line) => line.trim()).slice(0, 64);
  const body = (text) => {
    const { start, stop } = chosen(text);
    return { start, stop, others: sentences() };
  };
  const asking = analogies(context, model, () => ({ text: seen, others: sentences() }));

  const draw = (row, text) => {
    const all = spots(text), last = row.layers.length - 1;
    layer = Math.min(layer ?? last, last);
    const inContext = h("div", {});
    const cosines = (near) => near.map((one) => ({
      label: one.word, value: Math.max(0, one.cosine), note: one.cosine.toFixed(2) }));
    const drawLayer = () => fill(inContext, places(row.layers[layer]));
    const same = row.same_text.filter((p) => p.word.toLowerCase() === row.word.toLowerCase());
    const shown = same.length ? same : row.same_text.slice(0, 8);
    fill(result,
      h("section", { class: "card" }, h("h2", {}, "The word"),
        h("p", { class: "tokens", role: "group", "aria-label": "Words of the text" },
          all.flatMap((spot, n) => [h("button", { type: "button", "aria-pressed": String(n === which),
            class: "token word", on: { click: () => { which = n; ask(); } } }, spot.word), " "]))),
      h("div", { class: "split" },
        h("section", { class: "card" }, h("h2", {}, "Alone"),
          h("p", { class: "note" }, "Words whose embeddings are nearest; the sentence does not matter."),
          bars(cosines(row.alone), { whole: 1 })),
        h("section", { class: "card" }, h("h2", {}, "In its sentence"),
          h("p", { class: "note" }, "Words in sentences whose states are nearest: in this text, in the "
            + "others above, and in sentences that Foreword ships."),
          afterLayer(row.layers, layer, (n) => { layer = n; drawLayer(); }), inContext)),
      shown.length > 0 && chart({
        title: same.length ? `How alike “${row.word}” is to itself elsewhere in the text`
          : `How alike “${row.word}” is to the other words`,
        x: { label: "layer", names: row.layers.map((_, n) => String(n)) }, y: "cosine", height: 260,
        series: shown.map((p) => ({ name: p.word, points: p.cosines.map((c, n) => [n, c]) })),
      }), asking.root);
    drawLayer();
    asking.ask();
  };
  return { draw, body,
    controls: recording ? [] : [field("Other sentences to compare with", others)] };
}

/** Return a list of words in their sentences, with their cosines. */
const places = (near) => h("ol", { class: "near" }, near.map((one) =>
  h("li", {}, h("span", { class: "bar-value" }, one.cosine.toFixed(2)),
    h("span", { class: "prose" }, one.before, h("mark", {}, one.word), one.after))));

const afterLayer = (layers, layer, change) => select("After",
  layers.map((_, n) => [n, n ? `layer ${n}` : "the embedding"]), layer, (n) => change(Number(n)));

function analogies(context, model, sentences) {
  const inputs = ["man", "king", "woman"].map((word) => {
    const input = h("input", { type: "text", maxlength: 100, on: { input: settled(() => ask(), 400) } });
    input.value = word;
    return input;
  });
  const found = h("div", {});
  const ask = async () => {
    const [a, b, c] = inputs.map((input) => input.value.trim());
    try {
      const more = recording ? {} : sentences();
      const { data: [row] } = await post("/inspect/analogy", { model: model().id, a, b, c, ...more }, context);
      fill(found, bars(row.nearest.map((one) => ({ label: one.word,
        value: Math.max(0, one.cosine), note: one.cosine.toFixed(2) })), { whole: 1 }), inContext(row));
    } catch (error) {
      fill(found, errorLine(error));
    }
  };
  let layer = null;
  function inContext({ layers, missing }) {
    if (!layers) return null;
    if (missing.length) {
      return h("p", { class: "note" }, "In sentences: none has ", missing.map((word) => `“${word}”`).join(", "),
        "; write one above, under other sentences.");
    }
    layer = Math.min(layer ?? layers.length - 1, layers.length - 1);
    const near = h("div", {}), draw = () => fill(near, places(layers[layer]));
    draw();
    return [h("h3", {}, "In sentences"), h("p", { class: "note" }, "Each word is the mean of its places "
      + "in this text, the others above and sentences that Foreword ships."),
    afterLayer(layers, layer, (n) => { layer = n; draw(); }), near];
  }
  const labels = ["Word", "is to", "as this word is to which?"];
  const root = h("section", { class: "card" }, h("h2", {}, "Analogy"),
    h("div", { class: "controls" }, inputs.map((input, n) => field(labels[n], input))), found);
  return { root, ask };
}

// -- counts ------------------------------------------------------------------------------------------

function counts(result) {
  let at = null;
  const draw = (row) => {
    at = Math.min(at ?? row.tokens.length - 1, row.tokens.length - 1);
    const way = h("section", { class: "card" });
    const buttons = row.tokens.map((token, n) => h("button", { type: "button", class: "token",
      "aria-label": `${token.token}, ${bits(token.nats).toFixed(1)} bits`, style: surprise(token.nats),
      on: { click: () => point(n), focus: () => point(n), pointerenter: () => point(n) } },
    token.text));
    const point = (n) => {
      at = n;
      buttons.forEach((b, k) => { b.classList.toggle("at", k === n); });
      const token = row.tokens[n];
      fill(way, h("h2", {}, `The way to “${token.token}”`),
        h("ol", { class: "way" }, token.steps.map((step) => h("li", { class: step.is_seen ? "seen" : null },
          h("div", {}, h("p", { class: "prose" }, step.context.length ? step.context.join(" ") : "(no context)",
            " → ", h("b", {}, token.token)),
          h("p", { class: "note" }, step.is_seen
            ? `The text had these ${step.order} tokens: probability ${percent(Math.exp(step.nats))}.`
            : `Never seen: back off to a shorter context, with weight ${Math.exp(step.nats).toFixed(3)}.`),
          h("p", { class: "note" }, followers(step)))))),
        h("p", {}, "Together ", h("b", {}, percent(Math.exp(token.nats))),
          `: ${token.steps.map((step) => Math.exp(step.nats).toPrecision(3)).join(" × ")}.`));
    };
    fill(result, h("section", { class: "card" }, h("h2", {}, "The text"),
      h("p", { class: "tokens" }, buttons),
      h("p", { class: "note" }, `Counts of up to ${row.order} tokens; point at a token.`)), way);
    point(at);
  };
  return { draw };
}

function followers(step) {
  if (!step.followers) return "Not even the context was seen, so nothing is lost.";
  const names = step.after.map((one) => `${one.token} ${percent(Math.exp(one.nats))}`);
  return `${step.followers.toLocaleString("en")} token${step.followers === 1 ? "" : "s"} may follow it by `
    + `counts: ${names.join(", ")}${step.followers > names.length ? ", …" : ""}`;
}

// -- pieces ------------------------------------------------------------------------------------------

const WAYS = {
  merges: "Byte-pair encoding: letters are merged, the pair first that was learned first.",
  longest: "WordPiece: the longest piece of the vocabulary, then the longest of what is left.",
  likeliest: "Unigram: of all ways to cut the word, the likeliest.",
  whole: "Words or characters are kept as they are.",
};

function pieces(result) {
  const chips = (list, made) => h("span", { class: "chips" },
    list.map((piece) => h("span", { class: made && piece === made ? "made" : null }, piece)));
  const draw = (row) => {
    const several = row.words.filter((word, n) => (word.steps.length > 1 || word.pieces.length > 1)
      && row.words.findIndex((other) => other.word === word.word) === n);
    fill(result, h("section", { class: "card" }, h("h2", {}, "The pieces"),
      h("p", { class: "pieces" }, row.words.map((word) => chips(word.pieces))),
      h("p", { class: "note" }, WAYS[row.words[0]?.way] ?? "")),
    several.map((word) => h("details", { open: word === several[0] },
      h("summary", {}, word.word, " → ", chips(word.pieces)),
      h("div", {}, word.steps.length ? h("ol", { class: "steps" }, word.steps.map((step) =>
        h("li", {}, chips(step.pieces, step.made), h("span", { class: "note" }, stepNote(word, step)))))
        : h("p", { class: "note" }, "It has no steps to show.")))));
  };
  return { draw };
}

function stepNote(word, step) {
  if (word.way === "likeliest") return `${bits(step.value).toFixed(1)} bits`;
  if (!step.made) return "letters";
  if (word.way === "merges") return `merge ${step.value.toLocaleString("en")}`;
  return step.value ? `${step.value} longer one${step.value === 1 ? "" : "s"} not in the vocabulary`
    : "as long as can be";
}
