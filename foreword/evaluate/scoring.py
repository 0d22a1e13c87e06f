"""How likely a model finds a text: token by token, and summed over files."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from foreword.errors import UserError
from foreword.evaluate.perplexity import ScoreTotals, ScoringWindow, scoring_windows
from foreword.evaluate.prompting import PromptedModel
from foreword.evaluate.scorer import ScoringItem, scorer_of
from foreword.types import Array

LIKELIHOOD, PSEUDO = "log-likelihood", "pseudo-log-likelihood"


@dataclass(frozen=True)
class TextScore:
    """A text, scored.

    Attributes:
        tokens: what was scored, readable; (tokens,).
        log_probs: of each, in nats; (tokens,) float64.
        totals: their sums.
    """

    tokens: tuple[str, ...]
    log_probs: Array
    totals: ScoreTotals


@dataclass(frozen=True)
class ScoringPlan:
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
    items: Iterable[ScoringItem]
    count: int
    ends: int = 0

    @property
    def scored(self) -> Array:
        """The ids that are scored."""
        return self.ids[self.head : len(self.ids) - self.tail]


def score(
    prompted: PromptedModel, text: str, source: str | None = None, stride: int | None = None
) -> TextScore:
    """The log-probability of each token of `text`.

    - A causal model: of each token after those before it, and of the token that ends a document
      where training has one. The first token is not scored where none stands before a document.
    - A masked model: the pseudo-log-likelihood (Salazar et al. 2020): of each token, it alone
      hidden, given all others.
    - A model with a source: of each token of `text` as the answer to `source`, its closing token
      included.

    Longer texts than a row (and the memory before it, where there is one) are read in windows, see
    `scoring_windows`.

    Args:
        prompted: the model.
        text: to score.
        source: that it answers.
        stride: from window to window, in tokens; half a window if unsaid.

    Raises:
        UserError: nothing to score, a missing source, one too many, or a text too long to answer.
    """
    plan = _plan(prompted, text, source, stride)
    found = np.concatenate([np.empty(0), *scorer_of(prompted).log_probs(plan.items)])
    if not len(found):
        raise UserError("the text has no token that can be scored; give a longer one")
    tokens = tuple(prompted.tokenizer.token(int(i)) for i in plan.scored)
    return TextScore(tokens, found, _totals(prompted, plan, float(-found.sum())))


def score_texts(
    prompted: PromptedModel, texts: Iterable[str], stride: int | None = None
) -> Iterator[ScoreTotals]:
    """The sums of each text, computed many texts at once.

    A model of parallel text scores the second line of each as the answer to the first.

    Raises:
        UserError: as `score` does.
    """
    waiting: deque[ScoringPlan] = deque()
    is_pair = prompted.answers and bool(prompted.recipe.read.target)

    def items() -> Iterator[ScoringItem]:
        for text in texts:
            source, text = text.split("\n") if is_pair else (None, text)
            plan = _plan(prompted, text, source, stride)
            waiting.append(plan)
            yield from plan.items

    left, nats = 0, 0.0
    for found in scorer_of(prompted).log_probs(items()):
        while not left:  # texts without any item give empty sums
            left = waiting[0].count
            if not left:
                yield _totals(prompted, waiting.popleft(), 0.0)
        nats -= float(found.sum())
        left -= 1
        if not left:
            yield _totals(prompted, waiting.popleft(), nats)
            nats = 0.0
    yield from (_totals(prompted, plan, 0.0) for plan in waiting)


def measure_of(prompted: PromptedModel) -> str:
    """What the sums of its scores are called."""
    return PSEUDO if prompted.fills_in_place else LIKELIHOOD


def _totals(prompted: PromptedModel, plan: ScoringPlan, nats: float) -> ScoreTotals:
    unknown = prompted.vocab.special.get("[UNK]", -1)
    return ScoreTotals(
        measure=measure_of(prompted),
        nats=nats,
        tokens=len(plan.scored),
        bytes=plan.bytes,
        documents=1,
        unscored=plan.unscored,
        unknown=int((plan.scored == unknown).sum()),
        ends=plan.ends,
    )


def _plan(
    prompted: PromptedModel, text: str, source: str | None, stride: int | None
) -> ScoringPlan:
    prompted.require_token_head()
    ids = prompted.tokenizer.encode(text)
    if prompted.answers:
        return _plan_answer(prompted, text, ids, source)
    if source is not None:
        raise UserError(f"{prompted.name}: this {prompted.family} reads no source; leave it out")
    stride = max(1, prompted.reach // 2) if stride is None else stride
    if prompted.fills_in_place:
        return _plan_hidden(prompted, text, ids, stride)
    return _plan_causal(prompted, text, ids, stride)


def _plan_causal(prompted: PromptedModel, text: str, ids: Array, stride: int) -> ScoringPlan:
    whole = np.concatenate([prompted.opening, ids, prompted.eos])
    head = min(1, len(whole))
    unscored = min(len(ids), head - len(prompted.opening)) if len(whole) else 0
    # Only the bytes of scored tokens count, else a text would seem cheaper than it is.
    left_out = len(prompted.tokenizer.decode(ids[:unscored]).strip().encode()) if unscored else 0
    cut = scoring_windows(len(whole), prompted.reach, stride, both_sides=False)
    cut = [span for span in cut if span.stop > max(span.first, head)]

    def items() -> Iterator[ScoringItem]:
        for span in cut:
            window = whole[span.start : span.start + prompted.reach]
            yield ScoringItem(window, _is_scored(span, len(window), head))

    size = len(text.encode()) - left_out
    ends = min(len(prompted.eos), len(whole) - head)
    return ScoringPlan(whole, head, 0, unscored, size, items(), len(cut), ends)


def _is_scored(span: ScoringWindow, length: int, head: int) -> Array:
    scored = np.zeros(length, dtype=bool)
    scored[max(span.first, head) - span.start : span.stop - span.start] = True
    return scored


def _plan_hidden(prompted: PromptedModel, text: str, ids: Array, stride: int) -> ScoringPlan:
    head, tail = len(prompted.bos), len(prompted.eos)
    whole = np.concatenate([prompted.bos, ids, prompted.eos])
    width, mask = prompted.reach, prompted.vocab.id("[MASK]")
    cut = scoring_windows(len(whole), width, stride, both_sides=True)

    def items() -> Iterator[ScoringItem]:
        for span in cut:
            window = whole[span.start : span.start + width]
            for place in range(max(span.first, head), min(span.stop, len(whole) - tail)):
                is_hidden = np.arange(len(window)) == place - span.start
                yield ScoringItem(window, is_hidden, np.where(is_hidden, mask, window))

    return ScoringPlan(whole, head, tail, 0, len(text.encode()), items(), len(ids))


def _plan_answer(prompted: PromptedModel, text: str, ids: Array, source: str | None) -> ScoringPlan:
    if source is None:
        raise UserError(
            f"{prompted.name}: this {prompted.family} scores a text as the answer to a source; "
            "give one with --source"
        )
    read = prompted.source_of(prompted.tokenizer.encode(source, special=True))
    # The answer to a text with sentinels names them.
    answer = prompted.tokenizer.encode(text, special=True) if prompted.uses_sentinels else ids
    whole = np.concatenate([answer, prompted.end])
    prompted.check_length(len(read))
    prompted.check_length(len(whole))
    item = ScoringItem(whole, np.ones(len(whole), dtype=bool), read)
    items = [item] if len(whole) else []
    return ScoringPlan(whole, 0, 0, 0, len(text.encode()), items, len(items), len(prompted.end))
