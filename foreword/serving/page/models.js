// What models can do, and how they are shown.

import { colour } from "./chart.js";
import { h } from "./dom.js";

/** Whether a model takes requests of a path: "fill", "inspect/attention". */
export const able = (model, path) => model.endpoints.includes(path);

/** The name of a model with its colour, the same in all panels. */
export const badge = (model, models) => h("span", { class: "badge" },
  h("i", { "aria-hidden": "true", style: { background: colour(models.indexOf(model)) } }), model.id);
