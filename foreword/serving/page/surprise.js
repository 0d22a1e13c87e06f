// The words of a text, and its tokens with their surprise below them.

import { h } from "./dom.js";
import { bits, percent, surprise } from "./models.js";

const WORD = /[\p{L}\p{M}\p{N}'’-]+/gu; // foreword/serving/recording.py finds the same

/** Return the words of a text: [{text, start, stop}]. */
export const wordsOf = (text) => [...text.matchAll(WORD)].map((match) => (
  { text: match[0], start: match.index, stop: match.index + match[0].length }));

/** Return the characters that a token of /inspect/text stands for; its name if it has none. */
export const spelled = ({ text, token: name }) => text.replaceAll("\n", "⏎") || name;

export const inBits = (nats) => (Number.isFinite(nats) ? bits(nats).toFixed(1) : "–");

/** Return a token of /inspect/text with its surprise below it, and what was expected. */
export const token = (one) => h("li", { class: "under warm", style: surprise(one.nats),
  title: one.best?.slice(0, 3).map((best) => `${best.text} ${percent(Math.exp(best.nats))}`)
    .join(", ") },
h("span", {}, spelled(one)), h("small", {}, inBits(one.nats), h("span", { class: "heard" }, " bits")));
