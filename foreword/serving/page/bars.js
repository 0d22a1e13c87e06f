// Shares as bars.

import { h } from "./dom.js";

export const percent = (share) => `${(100 * share).toFixed(1)} %`;

/** Return a list of [name, share from 0 to 1] as bars; `chosen` is the name that stands out. */
export const bars = (pairs, chosen) => h("ul", { class: "bars" }, pairs.map(([name, share]) =>
  h("li", { class: name === chosen ? "chosen" : null }, h("span", {}, name),
    h("i", { "aria-hidden": "true", style: { "--share": `${100 * share}%` } }),
    h("b", {}, percent(share)))));
