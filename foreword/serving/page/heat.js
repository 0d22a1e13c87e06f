// Tables of weights as heat: a row for each word that attends, a column for each attended to.

import { h } from "./dom.js";

/** Return a table of weights, 0 to 1, dark for much. point(n): called with the row pointed at.
 *  isSquare: whether columns and rows are the same things, of which the diagonal is right; weights are shown. */
export function heatTable({ rows, columns, weights, title, point, isSquare }) {
  const says = (weight) => `${(100 * weight).toFixed(0)} %`;
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title },
    h("table", { class: isSquare ? "heat square" : "heat" }, h("caption", { class: "heard" }, title),
      h("thead", {}, h("tr", {}, h("td", {}), columns.map((name) =>
        h("th", { scope: "col" }, h("span", {}, name))))),
      h("tbody", {}, rows.map((name, n) => h("tr", {
        on: point && { pointerenter: () => point(n) },
      }, h("th", { scope: "row" }, point ? h("button", { type: "button",
        on: { focus: () => point(n), click: () => point(n) } }, name) : name),
      weights[n].map((weight, k) => h("td", { style: { "--w": weight },
        class: isSquare && k !== n ? "off" : null, title: `${name} → ${columns[k]}: ${says(weight)}` },
      h("span", { class: isSquare ? null : "heard" }, says(weight)))))))));
}

/** Return a small picture of weights. */
export function heatPicture(weights) {
  const size = weights.length;
  const canvas = h("canvas", { width: size, height: size, class: "heat-small" });
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(size, size);
  weights.forEach((row, y) => row.forEach((weight, x) => {
    image.data.set([84, 130, 232, Math.round(255 * Math.sqrt(weight))], 4 * (y * size + x));
  }));
  pen.putImageData(image, 0, 0);
  return canvas;
}
