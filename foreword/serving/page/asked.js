// Answers that are kept until the page is closed, since a checkpoint never changes.

import { post } from "./api.js";

const MOST = 4000;
const kept = new Map();

/** Return the answer to a POST; the same request is sent once. */
export function asked(path, body, options) {
  const key = `${path} ${JSON.stringify(body)}`;
  if (!kept.has(key)) {
    if (kept.size >= MOST) kept.delete(kept.keys().next().value);
    const answer = post(path, body, options);
    kept.set(key, answer);
    answer.catch(() => kept.delete(key));
  }
  return kept.get(key);
}
