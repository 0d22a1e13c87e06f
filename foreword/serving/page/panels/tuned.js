// Models tuned for a task: their answers, the words that decide, and where they are wrong.

import { errorLine, post } from "../api.js";
import { field, fill, h, select, unique } from "../dom.js";
import { able, bars, percent } from "../models.js";
import { sureness, taskOf } from "../tasks.js";
import { readTable } from "../tables.js";

export const title = "Tuned models";
export const lead = "Try a model tuned for a task, see which words decide, and read where it errs.";
const AT_ONCE = 64; // rows of a request
const MOST_WORDS = 256; // that are left out, one at a time
const MOST_ROWS = 5000; // of a file
const MOST_BYTES = 2e7;
const SHOWN = innerWidth < 640 ? 20 : 50; // rows of the table

export const needs = (models) => (models.some((model) => able(model, "predict")) ? null
  : "Open a folder that 'foreword tune' wrote: foreword app RUN/tuned/NAME");

export function show(root, context) {
  const models = context.models.filter((model) => able(model, "predict"));
  let model = models.find((one) => one.id === context.query.get("model")) ?? models[0];
  const form = h("div", {}), answered = h("div", {}), errors = h("div", { class: "errors" });
  root.append(
    h("div", { class: "card" }, models.length > 1 && select("Model", models.map((one) => one.id),
      model.id, (name) => {
        model = models.find((one) => one.id === name);
        context.keep({ model: name });
        open();
      }), form), answered, errors);

  function open() {
    const attempt = tryOut(model, form, answered, context);
    showErrors(model, errors, context, (values) => {
      attempt(values);
      form.scrollIntoView({ block: "center" });
      form.querySelector("textarea").focus();
    });
  }
  open();
}

/** Send rows to /predict. */
async function predict(model, rows, signal) {
  const body = { model: model.id, data: rows, probabilities: taskOf(model).shares };
  return (await post("/predict", body, { signal })).data;
}

// -- one text ----------------------------------------------------------------------------------------

/** Build the form; returns what tries some values. */
function tryOut(model, form, answered, { signal, announce, query }) {
  const task = taskOf(model);
  const { fields } = task.fields(model);
  const areas = Object.fromEntries(fields.map(([key]) =>
    [key, h("textarea", { rows: key === "text" ? 3 : 2 })]));
  areas[fields[0][0]].value = query.get("text") ?? "";
  begin();
  const values = () => Object.fromEntries(fields.map(([key]) => [key, areas[key].value]));
  fill(answered);
  fill(form,
    h("p", { class: "note" }, `${model.id}: tuned to ${task.does}`,
      /classify|multilabel|tag/.test(model.task) && model.labels.length <= 12
        && `, with labels ${model.labels.join(", ")}`,
      `; reads at most ${model.max_tokens.toLocaleString("en")} tokens`),
    h("form", { on: { submit: (event) => { event.preventDefault(); attempt(); } } },
      fields.map(([key, label]) => field(label, areas[key])),
      h("div", { class: "row" }, h("button", { class: "main" }, "Predict"))));

  /** Begin with an example of the task, unless there is a text. */
  async function begin() {
    try {
      const { rows: [first] } = await scored(model, 0, 1, signal);
      if (Object.values(areas).some((area) => area.value)) return;
      for (const key of Object.keys(areas)) areas[key].value = first[key] ?? "";
    } catch { /* its examples are not where they were */ }
  }

  async function attempt(given) {
    for (const key of Object.keys(areas)) areas[key].value = given?.[key] ?? areas[key].value;
    try {
      const [answer] = await predict(model, [task.row(model, values())], signal);
      if (answer.prediction === null) throw new Error("Write a text first.");
      fill(answered, h("h2", {}, "Answer"), answerOf(model, values(), answer),
        deciding(model, values(), answer, signal, announce));
      announce(`Answer: ${task.told(answer.prediction)}`);
    } catch (error) { fill(answered, errorLine(error)); }
  }
  return attempt;
}

/** Return some of the examples that a model was scored on, as its fields have them, and answers. */
async function scored(model, first, count, signal) {
  const { data, total } = await post("/inspect/examples", { model: model.id, first, count }, { signal });
  const text = (value) => (model.task === "tag" ? value.replaceAll("\n", " ") : value);
  // Before the options stands what the question is about.
  const second = (value) => (model.task === "choice" ? JSON.parse(value).slice(1).join("\n") : value);
  return { total, rows: data.map((row) => ({ ...row, text: text(row.text), pair: second(row.pair) })) };
}

const shares = (pairs) => h("div", { class: "narrowed" },
  bars(pairs.map(([label, value]) => ({ label, value })), { whole: 1 }));

/** Show an answer in the form of its task. */
function answerOf(model, values, answer) {
  const card = (...inside) => h("div", { class: "card answer" }, ...inside);
  const { labels, task } = model;
  if (task === "classify" || task === "multilabel") {
    const chosen = [answer.prediction].flat();
    return card(h("p", { class: "figure" }, h("b", {}, chosen.join(", ") || "none of the labels")),
      shares(labels.map((label) => [label, answer[`probability_${label}`]])
        .sort((a, b) => b[1] - a[1]).slice(0, 30)));
  }
  if (task === "choice") {
    const options = values.pair.split("\n").filter((line) => line.trim());
    return card(h("p", { class: "figure" }, h("b", {}, answer.prediction)),
      shares(options.map((option, n) => [option, answer.probabilities[n]])));
  }
  if (task === "tag") return card(tagged(values.text, answer));
  if (task === "span") {
    const { start, end, prediction, probability, best } = answer;
    return card(
      h("p", { class: "figure" }, h("b", {}, prediction || "no answer"), ` ${percent(probability)}`),
      h("p", { class: "prose" }, prediction ? [values.text.slice(0, start),
        h("mark", {}, values.text.slice(start, end)), values.text.slice(end)] : values.text),
      best?.length > 1 && shares(best.slice(0, 5).map((one) => [one.text, one.probability])));
  }
  if (task === "regress" || task === "embed") {
    return card(h("p", { class: "figure" }, h("b", {}, taskOf(model).told(answer.prediction)),
      task === "regress" && labels.length === 2 && ` in training from ${labels[0]} to ${labels[1]}`));
  }
  return card(h("p", { class: "prose" }, answer.prediction || h("em", {}, "no text")));
}

/** Show the tag of each word in the text; words without one are plain. */
function tagged(text, { prediction, probability, start, end }) {
  const kinds = [...new Set(prediction.map((tag) => tag.replace(/^[BI]-/, "")))].filter((tag) => tag !== "O");
  const parts = [];
  let at = 0;
  prediction.forEach((tag, n) => {
    const kind = tag.replace(/^[BI]-/, "");
    parts.push(text.slice(at, start[n]));
    parts.push(kind === "O" ? text.slice(start[n], end[n])
      : h("span", { class: "tagged", style: { "--cell": `var(--cell${kinds.indexOf(kind) % 12})` } },
        text.slice(start[n], end[n]), h("small", {}, `${tag} ${Math.round(100 * probability[n])} %`)));
    at = end[n];
  });
  return h("p", { class: "prose tags" }, parts, text.slice(at));
}

// -- the words that decide ---------------------------------------------------------------------------

/** Show the button that leaves out each word in turn, and what became of the answer. */
function deciding(model, values, answer, signal, announce) {
  const task = taskOf(model);
  if (model.task === "embed" && !model.is_pair) return null;
  const shown = h("div", {});
  const words = task.fields(model).words.flatMap((key) => [...values[key].matchAll(/\S+/g)]
    .map((match) => ({ key, text: match[0], start: match.index, stop: match.index + match[0].length })));
  let chosen;

  async function look() {
    const [name, value, place] = task.target(answer, model, chosen);
    fill(shown, h("p", { class: "note", role: "status" }, "Computing ..."));
    try {
      const left = words.slice(0, MOST_WORDS).map((word, n) => ({ ...word, n }))
        .filter(({ n }) => model.task !== "tag" || n !== place);
      const rows = left.map((word) => task.row(model, { ...values,
        [word.key]: without(values[word.key], word) }));
      const found = [];
      for (let n = 0; n < rows.length; n += AT_ONCE) {
        found.push(...await predict(model, rows.slice(n, n + AT_ONCE), signal));
      }
      const whole = value(answer, Infinity);
      left.forEach((word, n) => {
        // Without its last word a text is empty, and has no answer.
        word.weight = found[n].prediction === null ? null : whole - value(found[n], word.n);
      });
      fill(shown, h("p", {}, "Without this word, ", task.shares && "the probability of ",
        h("b", {}, name), ` falls (warm) or rises (cold) by${task.shares ? ", in points" : ""}:`),
        task.fields(model).words.map((key) => h("ol", { class: "unders", "data-field": key },
          words.filter((word) => word.key === key).map((word) =>
            weighed(word, left.find((one) => one.key === key && one.start === word.start), left, model)))));
      announce("The words that decide are marked.");
    } catch (error) { fill(shown, errorLine(error)); }
  }
  const which = model.task === "tag" && words.length > 1 && select("Tag to explain",
    answer.prediction.map((tag, n) => [n, `${words[n]?.text ?? n + 1}: ${tag}`]),
    task.target(answer, model)[2], (n) => { chosen = Number(n); look(); });
  return h("div", {}, h("h2", {}, "The words that decide"), h("div", { class: "card" },
    h("p", { class: "note" }, "Each word is left out in turn, and the answer is computed again without it."),
    h("div", { class: "row" }, which, h("button", { type: "button", disabled: words.length < 2,
      on: { click: look } }, "Leave out each word")), shown));
}

/** Return a text without a word and the blank after it. */
export const without = (text, { start, stop }) =>
  (text.slice(0, start) + text.slice(stop).replace(/^\s/, "")).trim();

function weighed(word, found, all, model) {
  const most = Math.max(1e-9, ...all.map((one) => Math.abs(one.weight ?? 0)));
  const weight = found?.weight ?? null;
  const amount = weight === null ? 0 : Math.abs(weight) / most;
  const told = weight === null ? "–" : model.task === "regress" || model.task === "embed"
    ? signed(weight, (x) => x.toPrecision(2)) : signed(weight, (x) => `${(100 * x).toFixed(1)}`);
  return h("li", { class: `under ${weight < 0 ? "cool" : "warm"}`,
    style: { "--heat": amount.toFixed(3) },
    "data-weight": weight }, h("span", {}, word.text), h("small", {}, told));
}

const signed = (value, shown) => (value < 0 ? "−" : "+") + shown(Math.abs(value));

// -- a file's errors ---------------------------------------------------------------------------------

function showErrors(model, errors, { signal, announce }, openRow) {
  const task = taskOf(model);
  const file = h("input", { type: "file", accept: ".tsv,.csv,.jsonl,.json,.txt" });
  const progress = h("div", {}), table = h("div", {});
  let running = null;
  file.addEventListener("change", () => file.files[0] && openFile(file.files[0]));
  fill(errors, h("h2", {}, "Where it errs"), h("div", { class: "card" },
    h("div", { class: "controls" },
      h("div", {}, h("button", { type: "button", on: { click: ownExamples } },
        "Examples it was scored on")),
      field("Or a file of labelled examples", file, "JSON lines, CSV or TSV with names of columns")),
    progress), table);

  /** Answer pieces of rows until there are no more, and show them as they come. */
  async function collect(piece) {
    running?.abort();
    const mine = running = new AbortController();
    signal.addEventListener("abort", () => mine.abort());
    const rows = [];
    const shown = examplesTable(model, table, openRow);
    const stop = h("button", { type: "button", class: "quiet", on: { click: () => mine.abort() } }, "Stop");
    const note = h("span", { class: "note", role: "status" }, "Computing ...");
    fill(progress, h("div", { class: "row" }, note, stop));
    try {
      for (let total = Infinity; rows.length < total;) {
        const found = await piece(rows.length, mine.signal);
        total = Math.min(found.total, MOST_ROWS);
        rows.push(...found.rows);
        note.textContent = `${rows.length.toLocaleString("en")} of ${total.toLocaleString("en")} examples`;
        shown(rows);
        if (!found.rows.length) break;
      }
      announce(note.textContent);
    } catch (error) { if (error.name !== "AbortError") fill(progress, errorLine(error)); }
    stop.remove();
  }

  function ownExamples() {
    collect(async (first, stop) => {
      const { total, rows } = await scored(model, first, AT_ONCE, stop);
      return { total, rows: rows.map((row) => judged(row.number + 1, row.text, row.pair, row.label, row)) };
    });
  }

  async function openFile(opened) {
    fill(table);
    if (opened.size > MOST_BYTES) {
      fill(progress, errorLine(new Error(`${opened.name}: has more than ${MOST_BYTES / 1e6} MB`)));
      return;
    }
    try {
      const { columns, rows } = readTable(opened.name, await opened.text());
      chooseColumns(columns, rows);
    } catch (error) { fill(progress, errorLine(error)); }
  }

  /** Ask which columns of a file hold what, and begin. */
  function chooseColumns(columns, rows) {
    const guess = (...names) => names.find((name) => columns.includes(name)) ?? columns.at(-1);
    const used = { text: guess(model.columns.text, "text", "sentence"),
      pair: guess(model.columns.pair, "pair"), label: guess("label", "labels", "answers", "answer", "answerKey") };
    const hasPair = Boolean(model.is_pair || model.columns.pair);
    const choose = (key, label) => select(label, columns, used[key], (name) => { used[key] = name; });
    const form = h("form", { on: { submit: (event) => { event.preventDefault(); begin(); } } },
      h("div", { class: "controls" }, choose("text", "Text"), hasPair && choose("pair", "Second text"),
        choose("label", "Label"), h("div", {}, h("button", { class: "main" },
          `Predict ${Math.min(rows.length, MOST_ROWS).toLocaleString("en")} rows`))));
    fill(progress, form);
    const begin = () => collect(async (first, stop) => {
      const some = rows.slice(first, first + AT_ONCE);
      const asking = some.map((row) => ({ ...row, [model.columns.text]: row[used.text],
        ...(hasPair && { [model.columns.pair]: row[used.pair] ?? null }) }));
      const found = await predict(model, asking, stop);
      const text = (value) => (Array.isArray(value) ? value.join(" ") : String(value ?? ""));
      return { total: rows.length, rows: some.map((row, n) => judged(first + n + 1,
        text(row[used.text]), hasPair ? [row[used.pair] ?? ""].flat().join("\n") : null,
        row[used.label], found[n])) };
    });
  }

  function judged(number, text, pair, label, answer) {
    const gold = task.gold(label ?? "");
    const none = answer.prediction === null;
    const right = none ? false : task.right(answer, gold);
    const off = right === null && gold !== null ? Math.abs(answer.prediction - gold) : null;
    const row = { number, text, pair, gold, answer, right, off, sure: none ? null : task.sure(answer) };
    return { ...row, beside: task.beside(row) };
  }
}

/** Return what shows rows in a table that can be sorted, of which each opens in the form. */
function examplesTable(model, table, openRow) {
  const isNumber = model.task === "regress" || model.task === "embed";
  let rows = [], sort = isNumber ? "off" : "sure", down = true, onlyErrors = !isNumber, page = 0;
  const columns = [
    ["number", "No.", (row) => row.number],
    ["text", "text", (row) => row.text],
    ["gold", "label", (row) => row.beside[0]],
    ["prediction", "answer", (row) => row.beside[1]],
    isNumber ? ["off", "off by", (row) => row.off ?? -1] : ["sure", "sure", (row) => row.sure ?? -1],
  ];
  const summary = h("p", { class: "figure" });
  const only = h("input", { type: "checkbox", checked: onlyErrors, id: unique("errors"),
    on: { change: () => { onlyErrors = only.checked; page = 0; draw(); } } });
  const holder = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Examples" });
  const pages = h("div", { class: "row" });
  fill(table, h("div", { class: "card" }, summary,
    !isNumber && h("div", {}, only, h("label", { for: only.id }, "only errors")), holder, pages));

  const cut = (text) => (text.length > 160 ? `${text.slice(0, 160)}…` : text);

  function draw() {
    const wrong = rows.filter((row) => row.right === false);
    fill(summary, isNumber
      ? [h("b", {}, (rows.reduce((a, row) => a + (row.off ?? 0), 0) / (rows.length || 1)).toPrecision(3)),
        " off on average"]
      : [h("b", {}, `${wrong.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`),
        ` wrong (${percent(wrong.length / (rows.length || 1))})`]);
    const key = columns.find(([name]) => name === sort)[2];
    const listed = (onlyErrors ? wrong : rows).toSorted((a, b) => {
      const [x, y] = [key(a), key(b)];
      return (typeof x === "string" ? x.localeCompare(y) : x - y) * (down ? -1 : 1);
    });
    const shown = listed.slice(page * SHOWN, (page + 1) * SHOWN);
    const focused = document.activeElement?.closest?.("th[data-column]")?.dataset.column;
    fill(holder, h("table", { class: "plain judged" }, h("thead", {}, h("tr", {},
      columns.map(([name, label]) => h("th", { scope: "col", "data-column": name,
        "aria-sort": sort !== name ? null : down ? "descending" : "ascending" },
      h("button", { type: "button", class: "quiet", on: { click: () => {
        down = sort === name ? !down : name === "sure" || name === "off";
        sort = name;
        page = 0;
        draw();
      } } }, label, h("span", { "aria-hidden": "true" }, sort !== name ? "" : down ? " ↓" : " ↑")))),
      h("th", { scope: "col" }, h("span", { class: "heard" }, "open")))),
    h("tbody", {}, shown.map((row) => h("tr", { class: row.right === false ? "wrong" : null },
      h("td", { class: "n" }, row.number),
      h("td", {}, cut(row.text), row.pair && h("span", { class: "second" }, cut(row.pair))),
      h("td", {}, cut(row.beside[0])),
      h("td", {}, row.answer.prediction === null ? "no text" : cut(row.beside[1])),
      h("td", { class: "n" }, isNumber ? row.off?.toPrecision(3) ?? "–" : sureness(row.sure)),
      h("td", {}, h("button", { type: "button", on: { click: () =>
        openRow({ text: row.text, pair: row.pair }) } }, "Open", h("span", { class: "heard" },
        ` example ${row.number}`))))))));
    if (focused) holder.querySelector(`th[data-column="${focused}"] button`)?.focus();
    const last = Math.ceil(listed.length / SHOWN) - 1;
    const turn = (label, to) => h("button", { type: "button", disabled: to < 0 || to > last,
      on: { click: () => { page = to; draw(); } } }, label);
    fill(pages, last > 0 && [turn("Before", page - 1),
      h("span", { class: "note" }, `page ${page + 1} of ${last + 1}`), turn("After", page + 1)]);
  }
  return (all) => { rows = all; draw(); };
}
