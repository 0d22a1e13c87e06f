// Requests to the server that this page comes from; no other is ever asked.

import { h } from "./dom.js";

// A page that `foreword app --export` wrote holds the answers, by request.
const held = document.getElementById("recording");
export const recording = held && JSON.parse(held.textContent);

const TOKEN = "foreword-token";

/** What the server refuses: its message, the key that is wrong, and the status. */
export class Refused extends Error {
  constructor(message, status, param = null) {
    super(message);
    Object.assign(this, { status, param });
  }
}

/** Keep the token that a server on another machine asks for, until the tab is closed. */
export const setToken = (token) => sessionStorage.setItem(TOKEN, token);

/** Return the key of a request in a recording: foreword/serving/recording.py makes the same. */
function keyOf(path, body) {
  const values = Object.entries(JSON.parse(body ?? "{}")).sort(([a], [b]) => (a < b ? -1 : 1));
  return [path, ...values.map(([name, value]) => `${name} ${JSON.stringify(value)}`)].join("\n");
}

function replayed(path, { body }) {
  const answer = recording.answers[keyOf(path, body)];
  if (answer === undefined) {
    throw new Refused("this page was written without a server: it has the texts above alone", 0);
  }
  return new Response(JSON.stringify(answer.content), { status: answer.status });
}

async function ask(path, options) {
  if (recording) return passed(replayed(path, options));
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token && { authorization: `Bearer ${token}` }) };
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("the server does not answer; is it still running?", 0);
  }
  return passed(answer);
}

/** Return an answer, or throw what it refuses. */
async function passed(answer) {
  if (answer.ok) return answer;
  const content = await answer.json().catch(() => null);
  const { message, param } = content?.error ?? {};
  throw new Refused(message ?? `the server answered ${answer.status}`, answer.status, param);
}

const posted = (path, body, signal) => ask(path, {
  method: "POST", body: JSON.stringify(body), signal,
  headers: { "content-type": "application/json" },
});

/** Return the answer to a GET. */
export const get = async (path, { signal } = {}) => (await ask(path, { signal })).json();

/** Return the answer to a POST of a body. */
export const post = async (path, body, { signal } = {}) =>
  (await posted(path, body, signal)).json();

/** Yield the events of a POST that is answered piece by piece. */
export async function* stream(path, body, { signal } = {}) {
  const answer = await posted(path, { ...body, stream: true }, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const content = JSON.parse(data);
      if (content.error) throw new Refused(content.error.message, content.error.code);
      yield content;
    }
  }
}

/** Return the paragraph that says what went wrong; null for what was only cut short. */
export const errorLine = (error) =>
  error.name === "AbortError" ? null
    : h("p", { class: "error", role: "alert" }, error.message);
