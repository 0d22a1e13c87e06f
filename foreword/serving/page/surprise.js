// Tokens coloured by how much they surprise a model, and words of a text.

import { h } from "./dom.js";

const MOST = 14; // bits, at which the colour is full
const WORD = /[\p{L}\p{N}_'’-]+/gu; // foreword/serving/recording.py finds the same

/** Return the words of a text: [{text, start, stop}]. */
export const wordsOf = (text) => [...text.matchAll(WORD)].map((match) => (
  { text: match[0], start: match.index, stop: match.index + match[0].length }));

/** Return a token's name as it is read: "Ġriver" is " river". */
export const spelled = (token) => token.replace(/[Ġ▁]/g, " ").replace(/^##/, "").replace(/Ċ/g, "⏎");

export const bits = (nats) => nats / Math.LN2;

/** Return the custom property that colours by surprise, for class "heat". */
export const heat = (nats) => ({
  "--heat": `${Math.round(Math.max(0, Math.min(bits(nats) / MOST, 1)) * 62)}%`,
});

/** Return a token with its surprise below it. */
export const token = ({ token: name, nats }) => h("li", { class: "token heat", style: heat(nats) },
  h("span", {}, spelled(name)), h("small", {}, bits(nats).toFixed(1),
    h("span", { class: "heard" }, " bits")));

/** Return what the colours mean. */
export const scale = () => h("p", { class: "note scale" }, "Surprise in bits: ",
  [0, 0.25, 0.5, 0.75, 1].map((share) => h("span", {
    class: "heat", style: { "--heat": `${Math.round(share * 62)}%` },
  }, String(share * MOST))));
