// One sentence through every model.

import { able } from "../models.js";
import { h } from "../dom.js";

export const title = "Sentence";
export const lead = "One sentence through every model, side by side.";
export const needs = (models) =>
  (models.some((model) => able(model, "score")) ? null
    : "Serve a model that predicts tokens: foreword app RUN...");

export function show(root, context) {
  root.append(h("p", {}, `${context.models.length} models`));
}
