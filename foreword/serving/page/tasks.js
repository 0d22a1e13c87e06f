// How each task is asked, how its answer is read, and what it was to be.

import { percent } from "./models.js";

const parsed = (text) => { try { return JSON.parse(text); } catch { return text; } };
const plain = (text) => String(text).toLowerCase().replace(/\b(a|an|the)\b|[^\p{L}\p{N}\s]/gu, " ")
  .split(/\s+/).filter(Boolean).join(" ");
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const share = (answer) => [answer.probability].flat().reduce((a, b) => Math.min(a, b), 1);
const only = { fields: [["text", "Text"]], words: ["text"] };
const pair = { fields: [["text", "First text"], ["pair", "Second text"]], words: ["text", "pair"] };

/** A task has
 *    does                  what it is tuned to do
 *    fields(model)         what a person gives, [key, label] each, and of which words are left out
 *    row(model, values)    the row of /predict
 *    shares                whether it gives the probability of each label
 *    target(answer)        what the words decide on: a name, and the value of it in an answer
 *    gold(label)           a label as it stands in a file or an example, as an answer has it
 *    right(answer, gold)   whether an answer is right; null where it is a number
 *    sure(answer)          how sure it is, 0 to 1; null if it does not say
 *    told(value)           an answer or label in words
 *    beside(row)           label and answer of an example in words, for a table */
const base = {
  does: "classify texts",
  fields: (model) => (model.is_pair ? pair : only),
  row: (model, { text, pair: second }) => (model.is_pair ? [text, second] : text),
  shares: true,
  gold: String,
  right: (answer, gold) => answer.prediction === gold,
  sure: share,
  told: String,
  beside({ gold, answer }) {
    return [gold, answer.prediction].map((value) => (value === null ? "" : String(this.told(value))));
  },
};

export const TASKS = {
  classify: {
    ...base,
    target: ({ prediction }) => [prediction, (a) => a[`probability_${prediction}`]],
  },
  multilabel: {
    ...base,
    does: "give labels",
    gold: (label) => [(Array.isArray(label) ? label : parsed(label))].flat().map(String).sort(),
    right: (answer, gold) => same([...answer.prediction].sort(), gold),
    told: (labels) => labels.join(", ") || "none",
    target: (answer, model) => {
      const of = (label) => answer[`probability_${label}`];
      const best = model.labels.reduce((a, b) => (of(b) > of(a) ? b : a));
      return [best, (a) => a[`probability_${best}`]];
    },
  },
  regress: {
    ...base,
    does: "give a number",
    shares: false,
    gold: Number,
    right: () => null,
    sure: () => null,
    told: (value) => Number(value).toPrecision(4),
    target: () => ["the number", (a) => a.prediction],
  },
  tag: {
    ...base,
    does: "tag words",
    fields: () => only,
    row: (model, { text }) => text,
    gold: (label) => (Array.isArray(label) ? label.map(String) : String(label).split("\n")),
    right: (answer, gold) => same(answer.prediction, gold),
    told: (labels) => labels.join(" "),
    // Only the words whose tags differ.
    beside: ({ text, gold, answer }) => {
      const words = text.split(" "), tags = answer.prediction ?? [];
      const wrong = [...words.keys()].filter((n) => gold[n] !== tags[n]);
      return [gold, tags].map((each) => wrong.map((n) => `${words[n]} ${each[n] ?? "–"}`).join(", "));
    },
    // The surest word with a tag, or the one that was chosen; its place moves with what is left out.
    target: (answer, model, chosen) => {
      const best = chosen ?? answer.prediction.reduce((a, label, n) =>
        (label !== "O" && (a === null || answer.probability[n] > answer.probability[a]) ? n : a), null) ?? 0;
      const label = answer.prediction[best];
      return [`${label} of word ${best + 1}`,
        (a, left) => a[`probability_${label}`][best - (left < best ? 1 : 0)], best];
    },
  },
  span: {
    ...base,
    does: "answer questions",
    fields: () => ({ fields: [["pair", "Question"], ["text", "Passage"]], words: ["pair", "text"] }),
    row: ({ columns }, { text, pair: question }) => ({ [columns.text]: text, [columns.pair]: question }),
    gold: (label) => {
      const found = typeof label === "string" ? parsed(label) : label?.text ?? label ?? [];
      return [found].flat().map((one) => (Array.isArray(one) ? one[0] : one.text ?? one));
    },
    right: ({ prediction }, gold) => (gold.length ? gold.map(plain).includes(plain(prediction))
      : prediction === ""),
    told: (value) => [value].flat()[0] || "no answer",
    target: ({ prediction }) => [prediction || "no answer", (a) => (prediction
      ? a.best?.find((one) => one.text === prediction)?.probability ?? 0
      : a.prediction === "" ? a.probability : 0)],
  },
  choice: {
    ...base,
    does: "choose an option",
    fields: () => ({ fields: [["text", "Question"], ["pair", "Options, a line each"]], words: ["text"] }),
    row: ({ columns }, { text, pair: given }) => {
      const options = given.split("\n").filter((line) => line.trim());
      if (columns.pair === "choice1") {
        return { [columns.text]: text, ...Object.fromEntries(options.map((o, n) => [`choice${n + 1}`, o])) };
      }
      const named = options.map((option, n) => ({ text: option, label: String(n) }));
      return columns.pair === columns.text ? { [columns.text]: { stem: text, choices: named } }
        : { [columns.text]: text, [columns.pair]: options };
    },
    // A label is the text, the number, or the letter of an option.
    right: ({ prediction, option }, gold) => (gold === prediction || gold === String(option)
      || gold.toUpperCase() === String.fromCharCode(65 + option)),
    target: ({ prediction, option }) => [prediction, (a) => a.probabilities[option]],
  },
  embed: {
    ...base,
    does: "compare texts",
    shares: false,
    right: () => null,
    sure: () => null,
    gold: (label) => (label === "" ? null : Number(label)),
    told: (value) => (Array.isArray(value) ? `${value.length} numbers` : Number(value).toPrecision(4)),
    target: () => ["similarity", (a) => a.prediction],
  },
};

// What writes its answer has no probability: a word decides if without it another text is written.
const writes = {
  ...base,
  does: "write an answer",
  shares: false,
  sure: () => null,
  target: ({ prediction }) => ["another answer", (a) => (a.prediction === prediction ? 1 : 0)],
};

const talks = {
  ...writes,
  does: "answer messages",
  fields: () => ({ fields: [["text", "Message"]], words: ["text"] }),
  row: ({ columns }, { text }) => ({
    [columns.text]: columns.text === "prompt" ? text : [{ role: "user", content: text }],
  }),
};

export const taskOf = (model) => TASKS[model.task] ?? (/chat|prefer/.test(model.task) ? talks : writes);

export const sureness = (value) => (value === null || value === undefined ? "–" : percent(value));
