// What models can do, and how they and their tokens are shown.

import { colour } from "./chart.js";
import { h } from "./dom.js";

/** Whether a model takes requests of a path: "fill", "inspect/attention". */
export const able = (model, path) => model.endpoints.includes(path);

/** The name of a model with its colour, the same in all panels. */
export const badge = (model, models) => h("span", { class: "badge" },
  h("i", { "aria-hidden": "true", style: { background: colour(models.indexOf(model)) } }), model.id);

/** Nats of a log-probability as bits of surprise. */
export const bits = (nats) => -nats / Math.LN2;

/** A share in per cent. */
export const percent = (share) => `${100 * share >= 0.01 || !share
  ? (100 * share).toFixed(share < 0.1 ? 2 : 1) : (100 * share).toPrecision(1)} %`;

const MOST_BITS = 12;

/** The style of a token by its surprise: `--heat`, 0 to 1. */
export const surprise = (nats) =>
  (nats === undefined ? {} : { "--heat": Math.min(1, bits(nats) / MOST_BITS).toFixed(3) });

/** Return a text and what a chosen token adds behind it, with a space between where one belongs. */
export function inPlace(before, token) {
  const head = before.trimEnd();
  if (/^\s/.test(token.text)) return [head, head ? token.text : token.text.trimStart()];
  const isWord = token.begins_word && /^[\p{L}\p{N}]/u.test(token.text); // of WordPiece
  if (isWord && head) return [`${head} `, token.text];
  return [token.begins_word && !head ? before : head, token.text];
}

/** Bars of shares, each a button if it can be chosen.
 *  rows: [{label, value, choose?, isRight?, faint?, note?}]; a value is a share of `whole`. */
export function bars(rows, { whole, describe = percent } = {}) {
  const most = whole ?? Math.max(...rows.map((row) => row.value), 1e-9);
  return h("ol", { class: "bars" }, rows.map((row) => {
    const content = [
      h("span", { class: "bar-label" }, row.label),
      h("span", { class: "bar", "aria-hidden": "true" },
        h("i", { style: { width: `${Math.max(0.4, 100 * Math.min(1, row.value / most))}%` } })),
      h("span", { class: "bar-value" }, row.note ?? describe(row.value)),
    ];
    const kind = [row.isRight && "right", row.faint && "faint"].filter(Boolean).join(" ") || null;
    return h("li", { class: kind }, row.choose
      ? h("button", { type: "button", on: { click: row.choose } }, content)
      : h("div", {}, content));
  }));
}
