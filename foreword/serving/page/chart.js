// Line charts in SVG, in the colours of the page.

import { h, s, unique } from "./dom.js";

const COLOURS = 12; // --cell0 to --cell11 of style.css

/** The colour of the n-th of several models, runs or lines. */
export const colour = (n) => `var(--cell${n % COLOURS})`;

/** Write a number of an axis: 1.5, 300, 20K. */
export function short(value) {
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e9, "B"], [1e6, "M"], [1e4, "K"]]) {
    if (size >= unit) return `${+(value / (letter === "K" ? 1e3 : unit)).toPrecision(3)}${letter}`;
  }
  return String(+value.toPrecision(3));
}

/** Return about `count` round numbers between two. */
export function ticks(low, high, count = 5) {
  const rough = (high - low) / count || 1;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find((n) => n * unit >= rough);
  const out = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) {
    out.push(+v.toPrecision(12));
  }
  return out;
}

/** Return a figure of lines, with a legend and a table of its values for those who do not see it.
 *
 *  series: [{name, points: [[x, y], ...], colour?, dashed?}]; a y that is null leaves a gap.
 *  title, x, y: what it shows, and what the axes are. marks: [{x, label}], vertical lines.
 *  xNames: names of the x values 0, 1, ... in place of numbers. log: whether x is logarithmic.
 *  pick(x): called with the x of the nearest point that is clicked. */
export function lineChart({ title, x, y, series, marks = [], xNames, log, pick, height = 240 }) {
  const isNarrow = innerWidth < 640, width = isNarrow ? 340 : 640;
  const left = 52, right = 14, top = 12, bottom = 40;
  const shown = series.map((one, n) => ({ colour: colour(n), ...one }));
  const points = shown.flatMap((one) => one.points).filter((p) => Number.isFinite(p[1]));
  const scaled = (v) => (log ? Math.log10(Math.max(v, 1e-9)) : v);
  const range = (values) => {
    const low = Math.min(...values), high = Math.max(...values);
    return low < high ? [low, high] : [low - 0.5, high + 0.5];
  };
  const [x0, x1] = range(points.length ? points.map((p) => scaled(p[0])) : [0, 1]);
  let [y0, y1] = range(points.length ? points.map((p) => p[1]) : [0, 1]);
  [y0, y1] = [y0 - (y1 - y0) * 0.04, y1 + (y1 - y0) * 0.06];
  const atX = (v) => left + ((scaled(v) - x0) / (x1 - x0)) * (width - left - right);
  const atY = (v) => top + ((y1 - v) / (y1 - y0)) * (height - top - bottom);

  const named = xNames ? xNames.map((_, n) => n) : null;
  const every = named ? Math.ceil(named.length / (isNarrow ? 6 : 12)) : 1;
  const xTicks = named ? named.filter((n) => n % every === 0)
    : log ? ticks(x0, x1, 4).filter(Number.isInteger).map((v) => 10 ** v) : ticks(x0, x1, isNarrow ? 3 : 5);
  const yTicks = ticks(y0, y1, 4);
  const text = (where, content) => s("text", { class: "tick", ...where }, content);

  const d = (one) => {
    let pen = "M";
    return one.points.map(([px, py]) => {
      if (!Number.isFinite(py)) { pen = "M"; return ""; }
      const step = `${pen}${atX(px).toFixed(1)} ${atY(py).toFixed(1)}`;
      pen = "L";
      return step;
    }).join("");
  };
  const readout = s("g", { class: "readout" });
  const svg = s("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title, class: "chart",
  },
  yTicks.map((v) => [
    s("line", { class: "grid", x1: left, x2: width - right, y1: atY(v), y2: atY(v) }),
    text({ x: left - 8, y: atY(v) + 4, "text-anchor": "end" }, short(v)),
  ]),
  xTicks.map((v) => text({ x: atX(v), y: height - bottom + 18, "text-anchor": "middle" },
    xNames ? xNames[v] : short(v))),
  text({ x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" }, x),
  text({ x: 12, y: (height - bottom) / 2 + top, "text-anchor": "middle",
    transform: `rotate(-90 12 ${(height - bottom) / 2 + top})` }, y),
  marks.map((mark) => [
    s("line", { class: "mark", x1: atX(mark.x), x2: atX(mark.x), y1: top, y2: height - bottom }),
    mark.label && text(atX(mark.x) > width * 0.8
      ? { x: atX(mark.x) - 5, y: top + 10, "text-anchor": "end" }
      : { x: atX(mark.x) + 5, y: top + 10 }, mark.label),
  ]),
  shown.map((one) => [
    s("path", { class: "line", d: d(one), style: { stroke: one.colour },
      "stroke-dasharray": one.dashed ? "5 4" : null }),
    one.points.length <= 40 && one.points.filter((p) => Number.isFinite(p[1])).map((p) =>
      s("circle", { cx: atX(p[0]), cy: atY(p[1]), r: 2.6, style: { fill: one.colour } })),
  ]),
  readout);

  const nearest = (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * width;
    return points.reduce((a, b) =>
      (Math.abs(atX(b[0]) - at) < Math.abs(atX(a[0]) - at) ? b : a), points[0])?.[0];
  };
  svg.addEventListener("pointermove", (event) => {
    const px = nearest(event);
    if (px === undefined) return;
    readout.replaceChildren(
      s("line", { class: "mark", x1: atX(px), x2: atX(px), y1: top, y2: height - bottom }),
      ...shown.flatMap((one) => one.points.filter((p) => p[0] === px && Number.isFinite(p[1]))
        .map((p) => text({ x: atX(px) + (atX(px) > width * 0.8 ? -7 : 7), y: atY(p[1]) - 6,
          "text-anchor": atX(px) > width * 0.8 ? "end" : "start", class: "tick value" },
        short(p[1])))));
  });
  svg.addEventListener("pointerleave", () => readout.replaceChildren());
  if (pick) {
    svg.classList.add("pick");
    svg.addEventListener("click", (event) => pick(nearest(event)));
  }

  const id = unique("chart");
  return h("figure", { class: "card plot", "aria-labelledby": id },
    h("figcaption", { id }, title),
    shown.length > 1 && h("ul", { class: "legend" }, shown.map((one) =>
      h("li", {}, h("i", { style: { background: one.colour } }), one.name))),
    svg,
    h("details", { class: "values" }, h("summary", {}, "Values"), h("div", { class: "scroll",
      tabindex: 0, role: "region", "aria-label": `Values: ${title}` }, valueTable(x, shown, xNames))));
}

function valueTable(x, series, xNames) {
  const at = [...new Set(series.flatMap((one) => one.points.map((p) => p[0])))]
    .sort((a, b) => a - b);
  const maps = series.map((one) => new Map(one.points));
  const cell = (v) => (Number.isFinite(v) ? +v.toPrecision(4) : "");
  return h("table", { class: "plain" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, x),
      series.map((one) => h("th", { scope: "col", class: "n" }, one.name || "value")))),
    h("tbody", {}, at.map((v) => h("tr", {}, h("th", { scope: "row" }, xNames ? xNames[v] : short(v)),
      maps.map((map) => h("td", { class: "n" }, cell(map.get(v))))))));
}
