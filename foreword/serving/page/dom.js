// Elements. Strings become text and never markup, whatever a model, a file or a name holds.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element: h("p", {class: "note", on: {click}}, "text", child, [more, children]).
 *  Attributes: `on` holds listeners, `style` custom properties, false and null leave one out. */
export const h = (tag, attributes, ...children) =>
  built(document.createElement(tag), attributes, children);

/** Return an element of SVG. */
export const s = (tag, attributes, ...children) =>
  built(document.createElementNS(SVG, tag), attributes, children);

function built(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) {
        element.addEventListener(event, listener);
      }
    } else if (name === "style") {
      for (const [key, set] of Object.entries(value)) element.style.setProperty(key, set);
    } else if (/^on/i.test(name) || (name === "href" && !/^[#/]/.test(value))) {
      throw new Error(`${name}: not in a page of models`);
    } else if (name === "value" || name === "checked" || name === "disabled") {
      element[name] = value;
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...nodes(children));
  return element;
}

const nodes = (children) =>
  children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false);

/** Replace what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

let count = 0;

/** Return an id that nothing else has. */
export const unique = (name = "id") => `${name}-${(count += 1)}`;

/** Return a labelled control: field("Temperature", h("input", ...), "a note"). */
export function field(label, control, note) {
  control.id ||= unique("field");
  const noteId = note ? `${control.id}-note` : null;
  if (noteId) control.setAttribute("aria-describedby", noteId);
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control,
    note && h("span", { class: "note", id: noteId }, note));
}

/** Return a slider with its value beside it; `shown` writes a value. */
export function slider(label, { min, max, step, value, shown = String, change }) {
  const out = h("output", {}, shown(value));
  const input = h("input", {
    type: "range", min, max, step, "aria-valuetext": shown(value),
    on: {
      input: () => {
        const now = Number(input.value);
        out.value = shown(now);
        input.setAttribute("aria-valuetext", shown(now));
        change(now);
      },
    },
  });
  input.value = value;
  input.id = unique("slider");
  out.htmlFor = input.id;
  return h("div", { class: "field slider" },
    h("label", { for: input.id }, label), out, input);
}

/** Return a choice among options, [value, text] each or values that are their own text. */
export function select(label, options, value, change) {
  const control = h("select", { on: { change: () => change(control.value) } },
    options.map((o) => {
      const [key, text] = Array.isArray(o) ? o : [o, o];
      return h("option", { value: key }, text);
    }));
  if (value !== undefined && value !== null) control.value = value;
  return field(label, control);
}

/** Call a function once no call came for some milliseconds. */
export function settled(call, wait = 250) {
  let timer;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...args), wait);
  };
}

/** Return a choice of views of one panel, kept in the address as `view`, and where they show.
 *  list: [[name, title, show(root) -> function that ends it or nothing], ...]. */
export function views(context, list) {
  const root = h("div", { class: "view" });
  let leave = null;
  const open = (name) => {
    leave?.();
    for (const b of row.children) b.setAttribute("aria-pressed", String(b.dataset.view === name));
    fill(root);
    leave = list.find(([key]) => key === name)[2](root) ?? null;
  };
  const row = h("div", { class: "row views", role: "group", "aria-label": "Views" },
    list.map(([name, title]) => h("button", { type: "button", "data-view": name,
      on: { click: () => { context.keep({ view: name }); open(name); } } }, title)));
  const asked = context.query.get("view");
  open(list.some(([name]) => name === asked) ? asked : list[0][0]);
  return { nodes: [row, root], end: () => leave?.() };
}

/** Return a choice among models, kept in the address as `model`. */
export function chooseModel(models, context, change) {
  const asked = context.query.get("model");
  const at = Math.max(0, models.findIndex((model) => model.id === asked));
  const control = select("Model", models.map((model, n) => [n, model.id]), at, (n) => {
    context.keep({ model: models[n].id });
    change(models[n]);
  });
  return [control, models[at]];
}
