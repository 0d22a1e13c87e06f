"""Log-probabilities of texts under a model, by token and in sum."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from foreword.data.read_documents import find_files, read_documents
from foreword.data.rng import RowRng
from foreword.data.text_files import ReadCounts
from foreword.errors import UserError
from foreword.evaluation.perplexity import ScoreTotals, scoring_windows
from foreword.evaluation.scorer import ScoringItem, scorer_of
from foreword.runs.trained_model import TrainedModel
from foreword.types import Array

LIKELIHOOD, PSEUDO = "log-likelihood", "pseudo-log-likelihood"
BOUND = "log-likelihood, lower bound"
DRAWS, DRAWS_SEED = 64, 0xD4A5  # random maskings of a window that estimate a bound


@dataclass(frozen=True)
class TextScore:
    """The scores of a text.

    Attributes:
        tokens: the scored tokens as text; (tokens,).
        log_probs: the log-probability of each, in nats; (tokens,) float64.
        totals: their sums.
    """

    tokens: tuple[str, ...]
    log_probs: Array
    totals: ScoreTotals

    @property
    def scored(self) -> list[dict[str, Any]]:
        """Each token with its negative log-probability, as JSON has it."""
        pairs = zip(self.tokens, self.log_probs.tolist(), strict=True)
        return [{"token": token, "nats": -value} for token, value in pairs]


@dataclass(frozen=True)
class ScoringPlan:
    """How a text is scored: its ids, and the items to score.

    Attributes:
        ids: the ids of the text with special tokens around it, (length,) int64.
        head: the number of ids at the beginning that are not scored.
        tail: the number of ids at the end that are not scored.
        unscored: the number of these that belong to the text.
        bytes: the size of the scored text in UTF-8.
        items: the items, in the order of `ids`.
        count: the number of items.
        ends: the number of scored tokens that end the text and are not part of it.
        where: the position among the scored ids of each log-probability of the items, which are
            added up by it, (log-probabilities,) int64; None if the items score each id once.
    """

    ids: Array
    head: int
    tail: int
    unscored: int
    bytes: int
    items: Iterable[ScoringItem]
    count: int
    ends: int = 0
    where: Array | None = None

    @property
    def scored(self) -> Array:
        """The ids that are scored."""
        return self.ids[self.head : len(self.ids) - self.tail]


def score(
    prompted: TrainedModel, text: str, source: str | None = None, stride: int | None = None
) -> TextScore:
    """Return the log-probability of each token of `text`.

    - A causal model scores each token given those before it, and the token that ends a document if
      training has one. The first token is not scored if no token precedes a document in training.
      So does a model that is both causal and masked.
    - A masked model gives the pseudo-log-likelihood (Salazar et al. 2020): it scores each token,
      the only one masked, given all others.
    - A model of masked diffusion gives a lower bound of the log-likelihood: tokens are scored at
      64 random shares of masking, weighted as in training (objective `diffusion`); those of one
      are its mean cost over random orders.
    - A model with a source scores each token of `text` as the answer to `source`, and the token
      that ends it.

    Texts longer than a row (and its memory) are read in windows; see `scoring_windows`.

    Args:
        prompted: the model.
        text: the text to score.
        source: the source that it answers.
        stride: the distance between windows, in tokens; default half a window.

    Raises:
        UserError: the text has nothing to score or is too long, or a source is missing or not
            accepted.
    """
    return score_pairs(prompted, [(text, source)], stride)[0]


def score_pairs(
    prompted: TrainedModel, pairs: Sequence[tuple[str, str | None]], stride: int | None = None
) -> list[TextScore]:
    """Return what `score` does for each text with its source, computed together.

    Raises:
        UserError: as `score` does.
    """
    plans = [plan_of(prompted, text, source, stride) for text, source in pairs]
    items = (item for plan in plans for item in plan.items)
    scored, scores = scorer_of(prompted).log_probs(items), []
    for plan in plans:
        log_probs = np.concatenate([np.empty(0), *islice(scored, plan.count)])
        if not len(log_probs):
            raise UserError("the text has no token that can be scored; give a longer one")
        if plan.where is not None:
            log_probs = np.bincount(plan.where, log_probs, len(plan.scored))
        tokens = tuple(prompted.tokenizer.token(int(i)) for i in plan.scored)
        totals = totals_of(prompted, plan, float(-log_probs.sum()))
        scores.append(TextScore(tokens, log_probs, totals))
    return scores


def score_texts(
    prompted: TrainedModel,
    texts: Iterable[str],
    stride: int | None = None,
    progress: Callable[[int, float], object] = lambda tokens, share: None,
) -> Iterator[ScoreTotals]:
    """Yield the sums of each text, computed for many texts at once.

    A model of parallel text scores the second line of each text as the answer to the first.

    Args:
        prompted: the model.
        texts: the texts to score.
        stride: the distance between windows, in tokens; default half a window.
        progress: called with the number of tokens scored so far, and the share of the text at hand
            that is done.

    Raises:
        UserError: as `score` does.
    """
    prompted.require_token_head()  # before a text is read
    plans: deque[ScoringPlan] = deque()  # of texts whose sums are not complete
    has_source_line = prompted.answers and bool(prompted.recipe.read.target)

    def items() -> Iterator[ScoringItem]:
        for text in texts:
            source, text = text.split("\n") if has_source_line else (None, text)
            plan = plan_of(prompted, text, source, stride)
            plans.append(plan)
            yield from plan.items

    remaining, nats, tokens = 0, 0.0, 0  # items and sum of the first of these; tokens of all
    for log_probs in scorer_of(prompted).log_probs(items()):
        while not remaining:  # texts without items have empty sums
            remaining = plans[0].count
            if not remaining:
                yield totals_of(prompted, plans.popleft(), 0.0)
        nats -= float(log_probs.sum())
        remaining -= 1
        progress(tokens := tokens + len(log_probs), 1 - remaining / plans[0].count)
        if not remaining:
            yield totals_of(prompted, plans.popleft(), nats)
            nats = 0.0
    yield from (totals_of(prompted, plan, 0.0) for plan in plans)


def score_files(
    prompted: TrainedModel, files: Sequence[Path], stride: int | None, advance: Callable[..., None]
) -> tuple[ScoreTotals, ReadCounts]:
    """Return the sums over files and folders, and what was read of them.

    Args:
        prompted: the model, whose recipe reads them.
        files: files and folders.
        stride: tokens from window to window; default: half a window.
        advance: called with the bytes done and their total, about, and a note.

    Raises:
        UserError: a file cannot be read, or the model gives texts no probability.
    """
    how, counts, totals = prompted.recipe.read, ReadCounts(), ScoreTotals(measure_of(prompted))
    total = sum(path.stat().st_size for path in find_files(files, None, how))
    documents = read_documents(files, how, counts)
    read = done = 0  # bytes, about: of the texts read, and of those scored

    def texts() -> Iterator[str]:
        nonlocal read
        for document in documents:
            read = max(counts.bytes_read, read + len(document.text))
            yield document.text

    def show(tokens: int, share: float) -> None:
        advance(min(total, done + share * (read - done)), total, f"{tokens:,} tokens")

    for text_totals in score_texts(prompted, texts(), stride, show):
        totals += text_totals
        done = read
    return totals, counts


def measure_of(prompted: TrainedModel) -> str:
    """Return the name of what the model's scores sum to."""
    if prompted.unmasks:
        return BOUND
    return LIKELIHOOD if prompted.continues or prompted.answers else PSEUDO


def first_context(prompted: TrainedModel) -> str:
    """Return what the first token of a text is given, in words."""
    if prompted.answers:
        return "the source"
    if prompted.unmasks:
        return "random sets of other tokens"
    if not prompted.continues:
        return "all other tokens"
    names = [prompted.tokenizer.token(int(i)) for i in prompted.prompt_prefix]
    return " ".join(names) or "nothing, so it is not scored"


def totals_of(prompted: TrainedModel, plan: ScoringPlan, nats: float) -> ScoreTotals:
    """Return the sums of a text that was scored."""
    return ScoreTotals(
        measure=measure_of(prompted),
        nats=nats,
        tokens=len(plan.scored),
        bytes=plan.bytes,
        documents=1,
        unscored=plan.unscored,
        unknown=int((plan.scored == prompted.vocab.unknown).sum()),
        ends=plan.ends,
    )


def plan_of(
    prompted: TrainedModel, text: str, source: str | None, stride: int | None
) -> ScoringPlan:
    """Return how a text is scored; see `score`.

    Raises:
        UserError: the model gives texts no probability, or a source is missing or not accepted.
    """
    prompted.require_token_head()
    ids = prompted.tokenizer.encode(text)
    if prompted.answers:
        return _plan_answer(prompted, text, ids, source)
    if source is not None:
        raise UserError(
            f"{prompted.name}: this {prompted.description} reads no source; leave it out"
        )
    stride = max(1, prompted.max_context // 2) if stride is None else stride
    if prompted.unmasks:
        return _plan_bound(prompted, text, ids, stride)
    if prompted.continues:
        return _plan_causal(prompted, text, ids, stride)
    return plan_masked(prompted, text, ids, stride)


def _plan_causal(prompted: TrainedModel, text: str, ids: Array, stride: int) -> ScoringPlan:
    whole = np.concatenate([prompted.prompt_prefix, ids, prompted.eos])
    head = min(1, len(whole))
    unscored = min(len(ids), head - len(prompted.prompt_prefix)) if len(whole) else 0
    # Count the bytes of scored tokens alone, else bits per byte would be too low.
    unscored_text = prompted.tokenizer.decode(ids[:unscored]).strip() if unscored else ""
    # Windows are over predictions: each reads `max_context` tokens and predicts the next ones.
    windows = scoring_windows(len(whole) - 1, prompted.max_context, stride, both_sides=False)

    def items() -> Iterator[ScoringItem]:
        for window in windows:
            ids = whole[window.start : window.start + prompted.max_context + 1]
            position = window.start + np.arange(len(ids)) - 1  # of the prediction of each token
            yield ScoringItem(ids, (window.first <= position) & (position < window.stop))

    size = len(text.encode()) - len(unscored_text.encode())
    ends = min(len(prompted.eos), len(whole) - head)
    return ScoringPlan(whole, head, 0, unscored, size, items(), len(windows), ends)


def plan_masked(prompted: TrainedModel, text: str, ids: Array, stride: int) -> ScoringPlan:
    """Return the plan of a pseudo-log-likelihood: each token in turn is the only one masked."""
    head, tail = len(prompted.bos), len(prompted.eos)
    whole = np.concatenate([prompted.bos, ids, prompted.eos])
    width, mask = prompted.max_context, prompted.vocab.id("[MASK]")
    windows = scoring_windows(len(whole), width, stride, both_sides=True)

    def items() -> Iterator[ScoringItem]:
        for window in windows:
            ids = whole[window.start : window.start + width]
            for position in range(max(window.first, head), min(window.stop, len(whole) - tail)):
                is_masked = np.arange(len(ids)) == position - window.start
                yield ScoringItem(ids, is_masked, np.where(is_masked, mask, ids))

    return ScoringPlan(whole, head, tail, 0, len(text.encode()), items(), len(ids))


def _plan_bound(prompted: TrainedModel, text: str, ids: Array, stride: int) -> ScoringPlan:
    """Return the plan of a bound: each window's tokens in random orders, given those before it.

    The number of masked tokens is spread evenly over the draws, by one random shift.
    """
    before = prompted.prompt_prefix
    end = prompted.eos if prompted.recipe.ends_texts else ids[:0]
    head, whole = len(before), np.concatenate([before, ids, end])
    width, mask = prompted.max_context, prompted.vocab.id("[MASK]")
    items, where = list[ScoringItem](), list[Array]()
    windows = scoring_windows(len(whole), width, stride, both_sides=False) if len(ids) else []
    for number, window in enumerate(windows):
        read, first = whole[window.start : window.stop], max(window.first, head) - window.start
        count = len(read) - first  # of the tokens to score
        rng = RowRng(DRAWS_SEED, number * DRAWS + np.arange(DRAWS))
        order = np.argsort(rng.uniform(count), axis=1)
        for ranks, share in zip(order, (rng.evenly() * count).astype(np.int64) + 1, strict=True):
            is_masked = np.zeros(len(read), dtype=bool)
            is_masked[first + ranks[:share]] = True
            weight = count / share / DRAWS
            items.append(ScoringItem(read, is_masked, np.where(is_masked, mask, read), weight))
            where.append(window.start + np.flatnonzero(is_masked) - head)
    size = len(text.encode())
    positions = np.concatenate([np.empty(0, np.int64), *where])
    return ScoringPlan(whole, head, 0, 0, size, items, len(items), len(end), positions)


def _plan_answer(prompted: TrainedModel, text: str, ids: Array, source: str | None) -> ScoringPlan:
    if source is None:
        raise UserError(
            f"{prompted.name}: this {prompted.description} scores a text as the answer to a "
            "source; give one with --source"
        )
    # The answer to a source with sentinels repeats them.
    has_names = prompted.uses_sentinels
    source_ids = prompted.source_of(prompted.tokenizer.encode(source, special=has_names))
    answer = prompted.tokenizer.encode(text, special=True) if has_names else ids
    whole = np.concatenate([answer, prompted.end_token])
    prompted.check_pair(len(source_ids), len(whole))
    item = ScoringItem(whole, np.ones(len(whole), dtype=bool), source_ids)
    items = [item] if len(whole) else []
    return ScoringPlan(
        whole, 0, 0, 0, len(text.encode()), items, len(items), len(prompted.end_token)
    )
