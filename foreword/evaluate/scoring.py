"""How likely a model finds a text: token by token, and summed over files."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from foreword.errors import UserError
from foreword.evaluate.perplexity import Item, Span, Totals, log_probs, spans
from foreword.evaluate.subject import Subject
from foreword.types import Array

LIKELIHOOD, PSEUDO = "log-likelihood", "pseudo-log-likelihood"


@dataclass(frozen=True)
class Score:
    """A text, scored.

    Attributes:
        tokens: what was scored, readable; (tokens,).
        log_probs: of each, in nats; (tokens,) float64.
        totals: their sums.
    """

    tokens: tuple[str, ...]
    log_probs: Array
    totals: Totals


@dataclass(frozen=True)
class Plan:
    """A text cut for scoring: ids, how many at its ends only frame it, and its items.

    Attributes:
        ids: with what frames them, (length,) int64.
        head: how many at the beginning are not scored.
        tail: how many at the end are not scored.
        unscored: how many of those belong to the text.
        bytes: of the text that is scored.
        items: in the order of `ids`.
        count: how many items.
        ends: how many of the scored tokens are no text but what ends it.
    """

    ids: Array
    head: int
    tail: int
    unscored: int
    bytes: int
    items: Iterable[Item]
    count: int
    ends: int = 0

    @property
    def scored(self) -> Array:
        """The ids that are scored."""
        return self.ids[self.head : len(self.ids) - self.tail]


def score(
    subject: Subject, text: str, source: str | None = None, stride: int | None = None
) -> Score:
    """The log-probability of each token of `text`.

    - A causal model: of each token after those before it, and of the token that ends a document
      where training has one. The first token is not scored where none stands before a document.
    - A masked model: the pseudo-log-likelihood (Salazar et al. 2020): of each token, it alone
      hidden, given all others.
    - A model with a source: of each token of `text` as the answer to `source`, its closing token
      included.

    Longer texts than a row (and the memory before it, where there is one) are read in windows, see
    `spans`.

    Args:
        subject: the model.
        text: to score.
        source: that it answers.
        stride: from window to window, in tokens; half a window if unsaid.

    Raises:
        UserError: nothing to score, a missing source, one too many, or a text too long to answer.
    """
    plan = _plan(subject, text, source, stride)
    found = np.concatenate([np.empty(0), *log_probs(subject, plan.items)])
    if not len(found):
        raise UserError("the text has no token that can be scored; give a longer one")
    tokens = tuple(subject.tokenizer.token(int(i)) for i in plan.scored)
    return Score(tokens, found, _totals(subject, plan, float(-found.sum())))


def score_texts(
    subject: Subject, texts: Iterable[str], stride: int | None = None
) -> Iterator[Totals]:
    """The sums of each text, computed many texts at once.

    A model of parallel text scores the second line of each as the answer to the first.

    Raises:
        UserError: as `score` does.
    """
    waiting: deque[Plan] = deque()
    is_pair = subject.answers and bool(subject.recipe.read.target)

    def items() -> Iterator[Item]:
        for text in texts:
            source, text = text.split("\n") if is_pair else (None, text)
            plan = _plan(subject, text, source, stride)
            waiting.append(plan)
            yield from plan.items

    left, nats = 0, 0.0
    for found in log_probs(subject, items()):
        while not left:  # texts without any item give empty sums
            left = waiting[0].count
            if not left:
                yield _totals(subject, waiting.popleft(), 0.0)
        nats -= float(found.sum())
        left -= 1
        if not left:
            yield _totals(subject, waiting.popleft(), nats)
            nats = 0.0
    yield from (_totals(subject, plan, 0.0) for plan in waiting)


def measure_of(subject: Subject) -> str:
    """What the sums of its scores are called."""
    return PSEUDO if subject.fills_in_place else LIKELIHOOD


def _totals(subject: Subject, plan: Plan, nats: float) -> Totals:
    unknown = subject.vocab.special.get("[UNK]", -1)
    return Totals(
        measure=measure_of(subject),
        nats=nats,
        tokens=len(plan.scored),
        bytes=plan.bytes,
        documents=1,
        unscored=plan.unscored,
        unknown=int((plan.scored == unknown).sum()),
        ends=plan.ends,
    )


def _plan(subject: Subject, text: str, source: str | None, stride: int | None) -> Plan:
    subject.require_token_head()
    ids = subject.tokenizer.encode(text)
    if subject.answers:
        return _plan_answer(subject, text, ids, source)
    if source is not None:
        raise UserError(f"{subject.name}: this {subject.family} reads no source; leave it out")
    stride = max(1, subject.reach // 2) if stride is None else stride
    if subject.fills_in_place:
        return _plan_hidden(subject, text, ids, stride)
    return _plan_causal(subject, text, ids, stride)


def _plan_causal(subject: Subject, text: str, ids: Array, stride: int) -> Plan:
    whole = np.concatenate([subject.opening, ids, subject.eos])
    head = min(1, len(whole))
    unscored = min(len(ids), head - len(subject.opening)) if len(whole) else 0
    # Only the bytes of scored tokens count, else a text would seem cheaper than it is.
    left_out = len(subject.tokenizer.decode(ids[:unscored]).strip().encode()) if unscored else 0
    cut = spans(len(whole), subject.reach, stride, both_sides=False)
    cut = [span for span in cut if span.stop > max(span.first, head)]

    def items() -> Iterator[Item]:
        for span in cut:
            window = whole[span.start : span.start + subject.reach]
            yield Item(window, _is_scored(span, len(window), head))

    size = len(text.encode()) - left_out
    ends = min(len(subject.eos), len(whole) - head)
    return Plan(whole, head, 0, unscored, size, items(), len(cut), ends)


def _is_scored(span: Span, length: int, head: int) -> Array:
    scored = np.zeros(length, dtype=bool)
    scored[max(span.first, head) - span.start : span.stop - span.start] = True
    return scored


def _plan_hidden(subject: Subject, text: str, ids: Array, stride: int) -> Plan:
    head, tail = len(subject.bos), len(subject.eos)
    whole = np.concatenate([subject.bos, ids, subject.eos])
    width, mask = subject.reach, subject.vocab.id("[MASK]")
    cut = spans(len(whole), width, stride, both_sides=True)

    def items() -> Iterator[Item]:
        for span in cut:
            window = whole[span.start : span.start + width]
            for place in range(max(span.first, head), min(span.stop, len(whole) - tail)):
                is_hidden = np.arange(len(window)) == place - span.start
                yield Item(window, is_hidden, np.where(is_hidden, mask, window))

    return Plan(whole, head, tail, 0, len(text.encode()), items(), len(ids))


def _plan_answer(subject: Subject, text: str, ids: Array, source: str | None) -> Plan:
    if source is None:
        raise UserError(
            f"{subject.name}: this {subject.family} scores a text as the answer to a source; "
            "give one with --source"
        )
    read = subject.source_of(subject.tokenizer.encode(source, special=True))
    # The answer to a text with sentinels names them.
    answer = subject.tokenizer.encode(text, special=True) if subject.uses_sentinels else ids
    whole = np.concatenate([answer, subject.end])
    subject.check_length(len(read))
    subject.check_length(len(whole))
    item = Item(whole, np.ones(len(whole), dtype=bool), read)
    items = [item] if len(whole) else []
    return Plan(whole, 0, 0, 0, len(text.encode()), items, len(items), len(subject.end))
