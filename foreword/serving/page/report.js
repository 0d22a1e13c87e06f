// The figures of a report, drawn in the place of the tables that stand for them without scripts.

import { chart } from "./chart.js";
import { h } from "./dom.js";
import { heatTable } from "./heat.js";

for (const data of document.querySelectorAll("figure > script")) {
  const spec = JSON.parse(data.textContent);
  data.parentElement.replaceWith(spec.weights
    ? h("figure", { class: "card plot" }, h("figcaption", {}, spec.title), heatTable(spec)) : chart(spec));
}
