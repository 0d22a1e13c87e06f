// One sentence through every model: the surprise of each token, what was expected in its place, and
// the branches that the reader takes.

import { errorLine, post, recording } from "../api.js";
import { short } from "../chart.js";
import { h, fill, settled } from "../dom.js";
import { able, badge, bars, bits, inPlace, percent, surprise } from "../models.js";
import { wordsOf } from "../surprise.js";

export const title = "Sentence";
export const lead = "One sentence through every model. The warmer a token, the more it surprised the "
  + "model; point at one to see what each model expected there, and choose it to go on from there.";
export const needs = (models) =>
  (models.some(reads) ? null
    : "Needs a model that predicts tokens: an n-gram, recurrent, causal, masked or T5 run.");

const reads = (model) => able(model, "inspect/text") && !model.reads_source;
export const recorded = true;

const EXAMPLES = ["The capital of France is Paris.", "I record the record.",
  "The king lives in a large house near the sea.", "Colorless green ideas sleep furiously."];
const WRITES_ON = 12; // tokens

export function show(root, context) {
  const models = context.models.filter(reads);
  const cards = models.map((model) => new Card(model, context, { point, choose }));
  const branches = []; // {text, parent, note}
  let current = -1, asked = null, place = null, masked = null;

  // -- controls --------------------------------------------------------------------------------------

  const input = h("textarea", { rows: 2, id: "sentence-text", maxlength: 2000, spellcheck: "false",
    on: { input: settled(() => go(input.value, "typed"), 500) } });
  const rest = h("input", { type: "checkbox", id: "write-on", checked: true });
  const mask = h("button", { type: "button", disabled: true, on: { click: maskWord } }, "Mask the word");
  const tree = h("nav", { class: "branches", "aria-label": "Branches" });
  root.append(
    h("div", { class: "card" },
      !recording && [h("label", { for: "sentence-text" }, "Sentence"), input],
      !recording && h("div", { class: "row examples" }, EXAMPLES.map((text) =>
        h("button", { type: "button", class: "quiet", on: { click: () => go(text, "example") } }, text))),
      h("div", { class: "row" }, mask,
        !recording && h("span", {}, rest, h("label", { for: "write-on", class: "inline" },
          "after a choice, let the model write on"))),
      tree),
    h("div", { class: "scale", "aria-hidden": "true" }, h("span", {}, "expected"),
      h("i", {}), h("span", {}, "12 bits of surprise or more")),
    h("div", { class: "cards" }, cards.map((card) => card.root)));

  // -- the sentence at hand --------------------------------------------------------------------------

  /** Show a text, as a branch of the one at hand. */
  function go(text, note) {
    if (text === branches[current]?.text) context.announce("This is what stands there.");
    if (!text.trim() || text === branches[current]?.text) return;
    const old = branches.findIndex((b) => b.text === text);
    if (old < 0) branches.push({ text, parent: note === "choice" ? current : null, note });
    open(old < 0 ? branches.length - 1 : old);
  }

  function open(number) {
    current = number;
    const { text } = branches[number];
    if (input.value !== text) input.value = text;
    context.text = text;
    place = masked = null;
    listBranches();
    read(text);
  }

  async function read(text) {
    asked?.abort();
    asked = new AbortController();
    const signal = AbortSignal.any([asked.signal, context.signal]);
    await Promise.all(cards.map((card) => card.read(text, signal)));
    if (signal.aborted) return;
    context.announce("All models have read the sentence.");
    const last = wordsOf(text).at(-1); // what to do is seen at one word, until another is pointed at
    if (place === null && last) point([...text.slice(0, last.start)].length);
  }

  function listBranches() {
    const under = (parent) => {
      const items = branches.flatMap((b, n) => (b.parent === parent ? [n] : []));
      return items.length ? h("ul", {}, items.map((n) => h("li", {},
        h("button", { type: "button", "aria-current": n === current ? "true" : null,
          on: { click: () => open(n) } }, branches[n].text), under(n)))) : null;
    };
    fill(tree, branches.length > 1 && [h("h2", {}, "Branches"), under(null)]);
  }

  /** Show what each model expected at the character of a token. */
  function point(at) {
    place = at;
    masked = null;
    mask.disabled = false;
    const whole = Math.max(...cards.map((card) => card.most(at))); // one scale, to compare models
    for (const card of cards) card.show(at, whole);
  }

  /** Mask the word at the place at hand, and let all models fill it. */
  async function maskWord() {
    const letters = [...branches[current].text];
    let start = place ?? 0, stop;
    const isLetter = (c) => c !== undefined && /[\p{L}\p{N}\p{M}'’-]/u.test(c);
    while (start < letters.length && /\s/.test(letters[start])) start += 1; // before a word
    stop = isLetter(letters[start]) ? start : start + 1;
    while (start > 0 && isLetter(letters[start - 1])) start -= 1;
    while (isLetter(letters[stop])) stop += 1;
    masked = { before: letters.slice(0, start).join(""), word: letters.slice(start, stop).join(""),
      after: letters.slice(stop).join("") };
    const mine = masked;
    const found = await Promise.all(cards.map((card) => card.candidates(mine, context.signal)));
    if (masked !== mine) return;
    const whole = Math.max(...found.flatMap(({ rows }) => rows ?? []).map((row) => row.value));
    cards.forEach((card, n) => card.showFilled(mine.word, found[n], whole));
    context.announce(`Masked ${mine.word}.`);
  }

  /** Go on from what was chosen in place of a token, or of the masked word. */
  async function choose(model, before, text, after) {
    const begun = before + text;
    if (masked || !rest.checked || !able(model, "completions") || !able(model, "inspect/text")) {
      go(begun + after, "choice");
      return;
    }
    try {
      const body = { model: model.id, prompt: begun, max_tokens: WRITES_ON, temperature: 0 };
      const answer = await post("/v1/completions", body, context);
      go(begun + answer.choices[0].text, "choice");
    } catch (error) {
      root.append(errorLine(error) ?? "");
    }
  }

  go(context.text || EXAMPLES[0], "first");
}

/** A model's card: its tokens, and what it expected in the place at hand. */
class Card {
  constructor(model, context, { point, choose }) {
    Object.assign(this, { model, point, choose, reading: null });
    this.total = h("div", { class: "total" });
    this.line = h("div", { class: "tokens", role: "group",
      "aria-label": `Tokens of ${model.id}; arrow keys move between them`,
      on: { keydown: (event) => this.key(event) } });
    this.others = h("div", { class: "others" });
    this.root = h("section", { class: "card model", "aria-label": model.id },
      h("header", {}, h("h2", {}, badge(model, context.models)),
        h("p", { class: "note" }, `${model.description.split(":")[0]}, ${short(model.parameters)} parameters`),
        this.total),
      this.line, this.others);
  }

  async read(text, signal) {
    this.root.classList.add("busy");
    try {
      const answer = await post("/inspect/text", { model: this.model.id, text, top: 8 }, { signal });
      this.reading = answer.data[0];
      this.draw();
    } catch (error) {
      if (error.name === "AbortError") return;
      this.reading = null;
      fill(this.line);
      fill(this.total);
      fill(this.others, errorLine(error));
    }
    this.root.classList.remove("busy");
  }

  draw() {
    const { reading } = this;
    const perByte = reading.bits / Math.max(1, reading.bytes);
    const isPseudo = reading.bits_per_byte === null;
    fill(this.total, h("b", {}, perByte.toFixed(2)), h("span", {},
      isPseudo ? "bits per byte, seeing both sides" : "bits per byte"));
    fill(this.line, reading.tokens.map((token, n) => this.token(token, n)));
    fill(this.others, h("p", { class: "note" }, `Each token is given ${reading.given}.`));
  }

  token(token, n) {
    const shown = token.is_end ? "⏎" : token.text || token.token;
    const says = token.nats === undefined ? "not predicted" : `${bits(token.nats).toFixed(1)} bits`;
    return h("button", {
      type: "button", class: `token${token.nats === undefined ? " given" : ""}`,
      tabindex: n ? -1 : 0, "aria-label": `${token.is_end ? "the end" : token.token}, ${says}`,
      style: surprise(token.nats), "data-n": n,
      on: { pointerenter: () => this.point(token.start), focus: () => this.point(token.start),
        click: () => this.point(token.start) },
    }, shown.replace(/\n/g, "⏎\n"));
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "ArrowDown" || event.key === "Enter") {
      const first = this.others.querySelector("button");
      if (first) { event.preventDefault(); first.focus(); }
    }
    if (step === undefined) return;
    event.preventDefault();
    const tokens = [...this.line.children];
    const to = Math.min(tokens.length - 1, Math.max(0, tokens.indexOf(document.activeElement) + step));
    tokens[to].focus();
  }

  /** Return the number of the token at a character of the sentence. */
  number(at) {
    const { tokens } = this.reading;
    let n = tokens.findIndex((token) => token.start <= at && at < token.stop);
    if (n < 0) n = tokens.findIndex((token) => token.start >= at);
    return n < 0 ? tokens.length - 1 : n;
  }

  /** Return the probability of what was expected most at a character; 0 where nothing was. */
  most(at) {
    const token = this.reading?.tokens[this.number(at)];
    return token?.best?.length ? Math.exp(token.best[0].nats) : 0;
  }

  /** Show what was expected at a character of the sentence, as shares of the longest bar. */
  show(at, whole) {
    if (!this.reading) return;
    const { tokens } = this.reading, n = this.number(at);
    const buttons = [...this.line.children];
    const isInside = this.line.contains(document.activeElement);
    buttons.forEach((button, k) => {
      button.classList.toggle("at", k === n);
      if (!isInside) button.tabIndex = k === n ? 0 : -1;
    });
    const token = tokens[n];
    if (token.nats === undefined) {
      fill(this.others, h("p", { class: "note" }, "The first token is given, not predicted."));
      return;
    }
    const before = tokens.slice(0, n).map((t) => t.text).join("");
    const after = tokens.slice(n + 1).map((t) => t.text).join("");
    const name = token.is_end ? "the end" : token.text.trim() || token.token;
    const share = Math.exp(token.nats);
    if (!token.best?.length) {
      fill(this.others, h("p", {}, `“${name}” is genuine with ${percent(share)}.`));
      return;
    }
    fill(this.others, h("p", { class: "note" }, "In place of ", h("b", {}, `“${name}”`),
      ` (${percent(share)}, rank ${(token.rank + 1).toLocaleString("en")}), given ${this.reading.given}:`),
    bars(token.best.map((one) => ({ label: one.token, value: Math.exp(one.nats),
      isRight: one.id === token.id,
      choose: () => this.take(before, one, token.text, after) })), { whole }));
  }

  take(before, one, old, after) {
    const space = /\s*$/.exec(old)[0]; // white space behind a token belongs to the next one
    const [head, text] = inPlace(before, one);
    this.choose(this.model, head, text, space + after);
  }

  /** Return what fills a blank, {from, rows}: from both sides, or from the left alone; or an error. */
  async candidates({ before, after }, signal) {
    const { model } = this;
    try {
      if (able(model, "fill")) {
        const text = `${before}${model.blank}${after}`;
        const { data } = await post("/fill", { model: model.id, text, top: 8 }, { signal });
        return { from: "filled from both sides", rows: data[0].blanks[0].map((one) => ({ label: one.text,
          value: one.probability, choose: () => this.choose(model, before, one.text, after) })) };
      }
      if (!able(model, "inspect/next")) return { from: "this model fills no blanks" };
      const text = before.trimEnd();
      const { data } = await post("/inspect/next", { model: model.id, text, top: 8 }, { signal });
      return { from: "guessed from the left alone", rows: data[0].best.map((one) => ({ label: one.token,
        value: Math.exp(one.nats),
        choose: () => { const [head, put] = inPlace(before, one); this.choose(model, head, put, after); } })) };
    } catch (error) {
      return { error };
    }
  }

  showFilled(word, { from, rows, error }, whole) {
    fill(this.others, error ? errorLine(error)
      : h("p", { class: "note" }, h("b", {}, `“${word}”`), ` is masked: ${from}`), rows && bars(rows, { whole }));
  }
}
