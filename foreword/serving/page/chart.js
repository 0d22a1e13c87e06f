// Charts in SVG, in the colours of the page and as wide as their place; a page's and a report's are the same.

import { fill, h, s, unique } from "./dom.js";

const COLOURS = 12; // --cell0 to --cell11 of style.css
const LEFT = 54, LABEL = 18, RIGHT = 14, TOP = 14, BOTTOM = 42; // room around the plot, pixels
const LETTER = 7; // pixels of a letter, about
const FEW = 40; // points of a line that are marked each
const STYLES = { // how wide a line is, how it is broken, how large its points are and whether hollow
  line: { line: 2.2, few: 2.6 }, faint: { line: 1.1, opacity: 0.4 }, dashed: { line: 1.6, dash: "5 4" },
  dots: { line: 1.6, dot: 3 }, points: { dot: 3.6 }, hollow: { dot: 3.6, isHollow: true },
  rings: { dot: 8, isHollow: true }, bars: {}, area: {},
};

/** The colour of the n-th of several models, runs or lines. */
export const colour = (n) => `var(--cell${n % COLOURS})`;

/** Write a number of an axis: 1.5, 300, 20K, 10¹³. */
export function short(value) {
  const size = Math.abs(value);
  if (size >= 1e12) {
    const [digits, power] = value.toExponential(1).split("e+");
    const raised = [...power].map((n) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[n]).join("");
    return `${digits === "1.0" ? "" : `${+digits} × `}10${raised}`;
  }
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

/** Return round numbers of a logarithmic axis, at most `count`: powers of ten, or more where there are few of them. */
function logTicks(low, high, count) {
  const lists = [[1], [1, 3], [1, 2, 5]].map((steps) => {
    const all = [];
    for (let e = Math.floor(low); e <= high; e += 1) all.push(...steps.map((n) => n * 10 ** e));
    return all.filter((v) => Math.log10(v) >= low - 1e-9 && Math.log10(v) <= high + 1e-9);
  });
  const [powers] = lists;
  if (powers.length > count) return powers.filter((_, n) => n % Math.ceil(powers.length / count) === 0);
  return lists.find((all) => all.length >= 3 && all.length <= count)
    ?? lists.find((all) => all.length === 2 && high - low > 0.7) // else round ones, evenly spaced
    ?? ticks(10 ** low, 10 ** high, Math.min(count, 4));
}

/** Return where the values of an axis are and what stands beside it.
 *  axis: {log, names, ticks, range, flip}; from, to: pixels of its ends. */
function scale(axis, values, room, from, to, count) {
  const scaled = (v) => (axis.log ? Math.log10(Math.max(v, 1e-30)) : v);
  const known = (axis.range ?? values).map(scaled);
  let low = known.reduce((a, b) => Math.min(a, b), Infinity), high = known.reduce((a, b) => Math.max(a, b), -Infinity);
  if (axis.names) [low, high] = [-0.5, axis.names.length - 0.5];
  else if (!known.length) [low, high] = [0, 1];
  else if (low === high) [low, high] = [low - 0.5, high + 0.5];
  else if (!axis.range) [low, high] = [low - (high - low) * room[0], high + (high - low) * room[1]];
  const ends = axis.flip ? [to, from] : [from, to];
  const at = (v) => ends[0] + ((scaled(v) - low) / (high - low)) * (ends[1] - ends[0]);
  const isOne = known.every(Number.isInteger) ? Number.isInteger : () => true; // no half epochs
  const every = Math.ceil((axis.names?.length ?? 0) / count);
  const round = axis.names ? [...axis.names.keys()].filter((n) => n % every === 0)
    : axis.ticks ?? (axis.log ? logTicks(low, high, count) : ticks(low, high, count).filter(isOne));
  const named = round.map((v) => [v, axis.names ? axis.names[v] : short(v)]);
  return { at, ticks: named.filter(([, name], n) => axis.names || name !== named[n - 1]?.[1]) };
}

/** Cut a name into lines. */
function wrapped(name, most) {
  const lines = [""];
  for (const word of name.split(" ")) {
    if (lines.at(-1) && lines.at(-1).length + word.length >= most) lines.push("");
    lines[lines.length - 1] += (lines.at(-1) ? " " : "") + word;
  }
  const cut = (line) => (line.length > most ? `${line.slice(0, most - 1)}…` : line);
  return lines.length > 2 ? [cut(lines[0]), cut(`${lines[1]}………`.slice(0, most + 1))] : lines.map(cut);
}

/** Return a figure, with a legend and a table of its values for those who do not see it.
 *
 *  series: [{name, points: [[x, y], ...], colour?, style?: one of STYLES, ends?: [[low, high], ...] of the
 *    y (of the x where y has names), colours? and texts? of the points}]; a y that is null leaves a gap.
 *    Series without a name are neither in the legend nor read out.
 *  x, y: what the axes are, a text or {label, log, names of 0, 1, ..., ticks, range, flip}.
 *  marks: [{x, label}] vertical lines, levels: [{y, label}] horizontal ones.
 *  legend: what the names are. pick(x): called with the x of the nearest point that is chosen. */
export function chart(spec) {
  const place = h("div", {}), heard = h("span", { class: "heard", role: "status" });
  const id = unique("chart");
  const named = [...new Map(spec.series.map((one, n) => [one.name, { colour: colour(n), ...one }])
    .filter(([name]) => name).reverse())].reverse(); // of one name, the first
  let drawn = 0;
  const draw = (width) => {
    drawn = width;
    fill(place, svgOf(spec, width, heard));
  };
  draw(innerWidth < 640 ? 320 : 600);
  new ResizeObserver(([entry]) => { // of what is hidden, the width is 0
    const width = Math.round(entry.contentRect.width);
    if (width && width !== drawn) draw(width);
  }).observe(place);
  const values = h("div", { class: "scroll", tabindex: 0, role: "region",
    "aria-label": `Values: ${spec.title}` });
  return h("figure", { class: "card plot", "aria-labelledby": id },
    h("figcaption", { id }, spec.title),
    (named.length > 1 || spec.legend) && h("ul", { class: "legend" },
      spec.legend && h("li", {}, `${spec.legend}:`),
      named.map(([name, one]) => h("li", {}, h("i", { class: swatch(STYLES[one.style ?? "line"]),
        style: { color: one.colours ? "var(--muted)" : one.colour } }), name))),
    place, heard,
    h("details", { class: "values", on: { toggle: () => fill(values, valueTable(spec)) } },
      h("summary", {}, "Values"), values));
}

const swatch = ({ isHollow, dash }) => (isHollow ? "hollow" : dash && "dashed");
const axisOf = (axis) => (typeof axis === "string" ? { label: axis } : axis);

/** Return the series that are read out: those with a name, or all that are not faint. */
function told(series) {
  const named = series.filter((one) => one.name);
  return named.length ? named : series.filter((one) => !["faint", "area"].includes(one.style));
}

function svgOf(spec, width, heard) {
  const { title, series, marks = [], levels = [], pick } = spec;
  const x = axisOf(spec.x), y = axisOf(spec.y);
  const rows = y.names?.length;
  const height = spec.height ?? (rows ? TOP + BOTTOM + rows * 34 : 240);
  const most = Math.floor((width * 0.4) / LETTER);
  const names = rows && y.names.map((name) => wrapped(name, most));
  const [right, bottom] = [width - RIGHT, height - BOTTOM];
  const shown = series.map((one, n) => ({ colour: colour(n), style: "line", ...one }));
  const finite = (p) => Number.isFinite(p[0]) && Number.isFinite(p[1]);

  // The axes: all that is drawn is within them, but for bands and what is beyond a range that is given.
  const points = shown.filter((one) => one.style !== "area").flatMap((one) => one.points).filter(finite);
  const ends = shown.filter((one) => one.style !== "area").flatMap((one) => one.ends ?? []).flat()
    .filter(Number.isFinite);
  const isBars = shown.some((one) => one.style === "bars");
  const heights = [...points.map((p) => p[1]), ...levels.map((level) => level.y), ...(rows ? [] : ends)];
  const ofY = rows ? scale(y, [], [0, 0], TOP, bottom, rows)
    : scale(y, isBars ? [0, ...heights] : heights, [isBars ? 0 : 0.05, isBars ? 0.12 : 0.06], bottom, TOP, Math.floor((bottom - TOP) / 40));
  const widest = LETTER * Math.max(0, ...(names?.flat() ?? ofY.ticks.map(([, name]) => name)).map((name) => name.length));
  const left = rows ? 12 + widest : Math.max(LEFT, 8 + widest + (y.label ? LABEL : 0));
  const isScatter = shown.every((one) => !STYLES[one.style].line);
  const side = isScatter || shown.some((one) => STYLES[one.style].isHollow) ? 0.03 : 0;
  const ofX = scale(x, [...points.map((p) => p[0]), ...marks.map((mark) => mark.x), ...(rows ? ends : [])],
    [side, side], left, right, Math.max(2, Math.min(12, Math.floor((right - left) / 64))));
  const atX = ofX.at, atY = ofY.at;

  const text = (where, ...content) => s("text", { class: "tick", ...where }, content);
  const line = (kind, x1, y1, x2, y2, more) => s("line", { class: kind, x1, x2, y1, y2, ...more });
  const beside = (px) => (px > left + (right - left) * 0.75
    ? { x: px - 6, "text-anchor": "end" } : { x: px + 6, "text-anchor": "start" });
  const clip = unique("clip"), texts = []; // of points, where they stand and how wide
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "chart",
    "aria-label": `${title}. Across: ${x.label}${y.label ? `; up: ${y.label}` : ""}; arrow keys read the values`,
    tabindex: 0, "data-key": pick && "chart" });
  const readout = s("g", { class: "readout" });
  const grid = rows
    ? ofX.ticks.map(([v]) => line("grid", atX(v), TOP, atX(v), bottom))
    : ofY.ticks.map(([v]) => line("grid", left, atY(v), right, atY(v)));
  fill(svg,
    s("clipPath", { id: clip }, s("rect", { x: left, y: TOP - 6, width: right - left, height: bottom - TOP + 6 })),
    grid,
    ofX.ticks.map(([v, name]) => text({ x: Math.min(atX(v), width - (LETTER * name.length) / 2), y: bottom + 18,
      "text-anchor": "middle" }, name)),
    ofY.ticks.map(([v, name]) => (rows
      ? names[v].map((part, n) => text({ x: left - 8, y: atY(v) + 4 + 15 * (n - (names[v].length - 1) / 2),
        "text-anchor": "end" }, part))
      : text({ x: left - 8, y: atY(v) + 4, "text-anchor": "end" }, name))),
    text({ x: (left + right) / 2, y: height - 6, "text-anchor": "middle" }, x.label),
    !rows && y.label && text({ x: 12, y: (TOP + bottom) / 2, "text-anchor": "middle",
      transform: `rotate(-90 12 ${(TOP + bottom) / 2})` }, y.label),
    marks.map((mark) => [line("mark", atX(mark.x), TOP, atX(mark.x), bottom),
      mark.label && text({ ...beside(atX(mark.x)), y: TOP + 8 }, mark.label)]),
    levels.map((level) => [line("mark", left, atY(level.y), right, atY(level.y)),
      level.label && text({ x: right, y: atY(level.y) - 5, "text-anchor": "end" }, level.label)]),
    shown.map((one) => drawing(one)), readout);

  function drawing(one) {
    const style = STYLES[one.style];
    const own = (n) => one.colours?.[n] ?? one.colour;
    if (one.style === "area") {
      const edge = (which) => one.points.map(([px], n) => `${atX(px)} ${atY(one.ends[n][which])}`);
      return s("path", { d: `M${[...edge(0), ...edge(1).reverse()].join("L")}Z`, class: "area",
        "clip-path": `url(#${clip})`, style: { fill: one.colour } });
    }
    if (one.style === "bars") {
      const wide = Math.min(60, (0.6 * (right - left)) / (x.names?.length ?? one.points.length));
      return one.points.map(([px, py], n) => finite([px, py]) && [
        s("rect", { x: atX(px) - wide / 2, y: atY(py), width: wide, height: Math.max(0, bottom - atY(py)),
          rx: 2, style: { fill: own(n) } }),
        text({ x: atX(px), y: atY(py) - 5, "text-anchor": "middle", class: "tick value" }, short(py))]);
    }
    let pen = "M";
    const path = style.line && one.points.map((p) => {
      if (!finite(p)) { pen = "M"; return ""; }
      const step = `${pen}${atX(p[0]).toFixed(1)} ${atY(p[1]).toFixed(1)}`;
      pen = "L";
      return step;
    }).join("");
    const r = style.dot ?? (one.points.length <= FEW && style.few);
    return [
      path && s("path", { class: "line", d: path, "clip-path": `url(#${clip})`, "stroke-dasharray": style.dash,
        style: { stroke: one.colour, "stroke-width": style.line, opacity: style.opacity ?? 1 } }),
      r && one.points.map((p, n) => finite(p) && [
        interval(p, one.ends?.[n], own(n)),
        s("circle", { cx: atX(p[0]), cy: atY(p[1]), r, class: style.isHollow ? "hollow" : null,
          style: style.isHollow ? { stroke: own(n) } : { fill: own(n) } }),
        one.texts?.[n] && label(atX(p[0]), atY(p[1]), one.texts[n])]),
    ];
  }

  /** Return the text of a point, beside it where no other text stands; null where there is no room. */
  function label(px, py, content) {
    const wide = LETTER * content.length;
    const free = [[6, -4], [6, 14], [-6 - wide, -4], [-6 - wide, 14]].map(([dx, dy]) => [px + dx, py + dy])
      .find(([tx, ty]) => tx + wide <= width && texts.every(([ox, oy, other]) =>
        tx >= ox + other || ox >= tx + wide || Math.abs(ty - oy) >= 12));
    if (free) texts.push([...free, wide]);
    return free && text({ x: free[0], y: free[1] }, content);
  }

  function interval(p, around, own) {
    if (!around || !around.every(Number.isFinite)) return null;
    const more = { "clip-path": `url(#${clip})`, style: { stroke: own } };
    return rows ? line("interval", atX(around[0]), atY(p[1]), atX(around[1]), atY(p[1]), more)
      : line("interval", atX(p[0]), atY(around[0]), atX(p[0]), atY(around[1]), more);
  }

  // What is read out, by the pointer and by keys: the values at one x, or of one row.
  const key = rows ? (p) => Math.round(p[1]) : (p) => p[0];
  const spoken = told(shown).map((one) => ({ ...one, points: one.points.filter(finite) }));
  const keys = [...new Set(spoken.flatMap((one) => one.points.map(key)))].sort((a, b) => a - b);
  const placed = (v) => (rows ? atY(v) : atX(v));
  const closest = (at) => keys.reduce((a, b) =>
    (Math.abs(placed(b) - at) < Math.abs(placed(a) - at) ? b : a), keys[0]);
  let now = pick && marks.length ? closest(atX(marks[0].x)) : null;
  function read(v) {
    now = v;
    const at = spoken.flatMap((one) => one.points.filter((p) => key(p) === v).map((p) => [one, p]));
    fill(readout,
      rows ? line("mark", left, atY(v), right, atY(v)) : line("mark", atX(v), TOP, atX(v), bottom),
      at.map(([, p]) => text({ ...beside(atX(p[0])), y: atY(p[1]) - 7, class: "tick value" },
        short(rows ? p[0] : p[1]))));
    return `${rows ? y.names[v] : `${x.label} ${x.names ? x.names[v] : short(v)}`}: `
      + at.map(([one, p]) => `${one.name ? `${one.name} ` : ""}${short(rows ? p[0] : p[1])}`).join(", ");
  }
  const nearest = (event) => {
    const box = svg.getBoundingClientRect();
    return closest(rows ? ((event.clientY - box.top) / box.height) * height
      : ((event.clientX - box.left) / box.width) * width);
  };
  svg.addEventListener("pointermove", (event) => { if (keys.length) read(nearest(event)); });
  for (const end of ["pointerleave", "blur"]) svg.addEventListener(end, () => fill(readout));
  svg.addEventListener("keydown", (event) => {
    const last = keys.length - 1, n = keys.indexOf(now);
    const to = { ArrowRight: n + 1, ArrowDown: n + 1, ArrowLeft: n < 0 ? last : n - 1,
      ArrowUp: n < 0 ? last : n - 1, Home: 0, End: last }[event.key];
    if (to !== undefined && keys.length) {
      event.preventDefault();
      heard.textContent = read(keys[Math.max(0, Math.min(last, to))]);
    } else if (event.key === "Enter" && now !== null) pick?.(now);
  });
  if (pick) {
    svg.classList.add("pick");
    svg.addEventListener("click", (event) => pick(nearest(event)));
  }
  return svg;
}

function valueTable({ series, x, y }) {
  const columns = told(series), rows = axisOf(y).names, names = rows ?? axisOf(x).names;
  const [key, value] = rows ? [(p) => Math.round(p[1]), (p) => p[0]] : [(p) => p[0], (p) => p[1]];
  const at = [...new Set(columns.flatMap((one) => one.points.map(key)))].sort((a, b) => a - b);
  const maps = columns.map((one) => new Map(one.points.map((p, n) => [key(p), [value(p), one.ends?.[n]]])));
  const number = (v) => (Math.abs(v) >= 1e6 ? short(v) : String(+v.toPrecision(4)));
  const cell = ([v, around] = []) => (!Number.isFinite(v) ? "" : number(v) + (around?.every(Number.isFinite)
    ? ` (${number(around[0])} to ${number(around[1])})` : ""));
  return h("table", { class: "plain" },
    h("thead", {}, h("tr", {}, rows ? h("td", {}) : h("th", { scope: "col" }, axisOf(x).label),
      columns.map((one) => h("th", { scope: "col", class: "n" }, one.name || (rows ? axisOf(x).label : "value"))))),
    h("tbody", {}, at.map((v) => h("tr", {}, h("th", { scope: "row" }, names ? names[v] : short(v)),
      maps.map((map) => h("td", { class: "n" }, cell(map.get(v))))))));
}
