// What temperature, top-k and top-p make of the next token's probabilities, as the server samples.

/** Return the probability of each of the likeliest tokens, and how many tokens may be drawn at all.
 *
 *  best: log-probabilities in nats, the likeliest first. rest: the less likely tokens in bins,
 *  [nats of each, their number], likelier bins first. */
export function sampled(best, rest, { temperature, topK, topP }) {
  if (temperature === 0) return { p: best.map((_, n) => (n ? 0 : 1)), kept: 1, other: 0 };
  let groups = [...best.map((nats) => [nats, 1]), ...rest];
  const most = groups.length ? groups[0][0] : 0;
  groups = groups.map(([nats, count]) => [Math.exp((nats - most) / temperature), count]);
  if (topK > 0) groups = take(groups, topK);
  const total = groups.reduce((sum, [w, count]) => sum + w * count, 0);
  // The first token beyond a sum of `topP` is still drawn, so each is kept until the sum before it.
  let before = 0;
  if (topP < 1) {
    groups = groups.map(([w, count]) => {
      const each = w / total;
      const room = each > 0 ? Math.ceil((topP - before) / each - 1e-9) : 0;
      before += each * count;
      return [w, Math.max(0, Math.min(count, room))];
    });
  }
  const sum = groups.reduce((all, [w, count]) => all + w * count, 0);
  const p = best.map((_, n) => (groups[n] ? (groups[n][0] * groups[n][1]) / sum : 0));
  const kept = groups.reduce((all, [, count]) => all + count, 0);
  return { p, kept, other: Math.max(0, 1 - p.reduce((a, b) => a + b, 0)) };
}

/** Keep the first tokens of groups. */
function take(groups, most) {
  let left = most;
  return groups.map(([w, count]) => {
    const some = Math.max(0, Math.min(count, left));
    left -= count;
    return [w, some];
  });
}
