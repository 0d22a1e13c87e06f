// Beam search as a tree: a column for each token, a branch for each beam, the best text marked.

import { h, s } from "./dom.js";
import { percent } from "./models.js";

const WIDE = 108, HIGH = 30, LEFT = 46;

/** Return the tree of a search: its nodes with their parents, and the texts it found. */
export function beamTree({ nodes, texts }) {
  const children = new Map([[null, []]]);
  for (const node of nodes) {
    if (!children.has(node.parent)) children.set(node.parent, []);
    children.get(node.parent).push(node);
  }
  // Leaves below each other, likelier branches above; others in the middle of their children.
  const y = new Map();
  let leaves = 0;
  const place = (id) => {
    const below = (children.get(id) ?? []).sort((a, b) => b.total - a.total);
    if (!below.length) { y.set(id, (leaves += 1) - 0.5); return y.get(id); }
    const at = below.map((node) => place(node.node));
    y.set(id, (at[0] + at.at(-1)) / 2);
    return y.get(id);
  };
  place(null);
  const byNumber = new Map(nodes.map((node) => [node.node, node]));
  const path = (id) => (id === null || id === undefined ? []
    : [id, ...path(byNumber.get(id).parent)]);
  const best = new Set(path(texts[0]?.node));
  const kept = new Set(texts.flatMap((text) => path(text.node)));
  const ranks = new Map(texts.map((text, n) => [text.node, n + 1]));
  const steps = Math.max(0, ...nodes.map((node) => node.step));
  const [width, height] = [LEFT + steps * WIDE + 40, Math.max(1, leaves) * HIGH + 10];
  const at = (id) => [id === null ? 18 : LEFT + (byNumber.get(id).step - 1) * WIDE, y.get(id) * HIGH + 5];

  const edge = (node) => {
    const [x0, y0] = at(node.parent), [x1, y1] = at(node.node);
    const from = node.parent === null ? x0 + 6 : x0 + WIDE - 26;
    const kind = best.has(node.node) ? "best" : kept.has(node.node) ? "kept" : "dropped";
    const middle = (from + x1) / 2;
    return s("path", { class: `edge ${kind}`, "stroke-width": 1 + 5 * Math.exp(node.nats),
      d: `M${from} ${y0}C${middle} ${y0} ${middle} ${y1} ${x1} ${y1}` });
  };
  const label = (node) => {
    const [x, top] = at(node.node);
    const kind = best.has(node.node) ? "best" : kept.has(node.node) ? "kept" : "dropped";
    const text = node.token.length > 11 ? `${node.token.slice(0, 10)}…` : node.token;
    return s("g", { class: `node ${kind}` },
      s("title", {}, `${node.token}: ${percent(Math.exp(node.nats))}, all so far ${percent(Math.exp(node.total))}`),
      s("rect", { x, y: top - 12, width: WIDE - 26, height: 24, rx: 6 }),
      s("text", { x: x + 7, y: top + 4.5 }, text),
      ranks.has(node.node) && s("text", { class: "rank", x: x + WIDE - 20, y: top + 4.5 },
        `#${ranks.get(node.node)}`));
  };
  return h("section", { class: "card" },
    h("h2", {}, "The beams"),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Tree of the beams" },
      s("svg", { class: "tree", width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
        "aria-label": `Tree of ${nodes.length} beginnings; the best text is ${texts[0]?.text ?? "none"}` },
      s("circle", { cx: 18, cy: at(null)[1], r: 6, class: "start" }),
      nodes.map(edge), nodes.map(label))),
    h("p", { class: "note" }, "Thick lines are likely tokens; the coloured branch is the best text, the "
      + "grey ones were dropped."));
}
