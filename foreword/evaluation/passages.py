"""Parts of texts, such as the options of a question, scored by any language model."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from foreword.errors import UserError
from foreword.evaluation.perplexity import scoring_windows
from foreword.evaluation.scorer import DetectionScorer, Scorer, ScoringItem, scorer_of
from foreword.runs.trained_model import PREDICTORS, TrainedModel
from foreword.types import Array

LIKELIHOOD = "log-likelihood"
PSEUDO = "pseudo-log-likelihood, within words from left to right"
CONDITIONAL = "log-likelihood as the answer to a source"
BLANKS = "log-likelihood in place of a sentinel"
GENUINE = "log-probability that no token was replaced"


@dataclass(frozen=True)
class Passage:
    """A part of a text, and what stands before and after it, spaces included.

    Attributes:
        text: the part that is scored; perhaps with spaces around it. Those before it are part of
            its first word, those after it are moved out.
        before: the text before it.
        after: the text after it.
    """

    text: str
    before: str = ""
    after: str = ""

    @property
    def full_text(self) -> str:
        """The whole text."""
        return self.before + self.text + self.after

    @property
    def span(self) -> tuple[int, int]:
        """The first character of the part without spaces, and the one after its last."""
        begin = len(self.before) + len(self.text) - len(self.text.lstrip())
        return begin, max(begin, len(self.before) + len(self.text.rstrip()))

    @property
    def context_characters(self) -> int:
        """The number of characters before the part and the spaces in front of it."""
        return len(self.full_text[: self.span[0]].rstrip())


@dataclass(frozen=True)
class PassageScore:
    """The score of a passage.

    Attributes:
        nats: its log-probability, in nats.
        tokens: the number of tokens that were scored.
        unknown: how many of them are [UNK].
        ranks: for each token, how many others are at least as likely, (tokens,) int64; empty if not
            asked for.
        is_cut: whether the model had no room for all of the text, and read a part of it.
    """

    nats: float
    tokens: int
    unknown: int
    ranks: Array
    is_cut: bool = False

    @property
    def is_likeliest(self) -> bool:
        """Whether each token was the likeliest one. [UNK] stands for no word and never counts."""
        return bool(len(self.ranks)) and not self.ranks.any() and not self.unknown


class _Plan(NamedTuple):
    """What is scored for a passage: of each item the first `counts` tokens."""

    items: Sequence[ScoringItem]
    counts: Sequence[int]
    unknown: int
    is_cut: bool


def method_of(prompted: TrainedModel, *, ranks: bool = False) -> str:
    """Return how a model scores passages.

    Args:
        prompted: the model.
        ranks: whether it is to count the tokens that are at least as likely too.

    Raises:
        UserError: it cannot.
    """
    if ranks:
        prompted.require_token_ranks()
    if prompted.detects_replacements:
        return GENUINE
    able = PREDICTORS if ranks else f"{PREDICTORS}, replaced-token"
    prompted.require_token_head(able)
    if prompted.continues:
        return LIKELIHOOD
    if not prompted.answers:
        return PSEUDO
    if prompted.recipe.read.target:
        raise prompted.unable(
            "learned to answer sources with their targets and gives a text of its own no "
            "probability",
            f"{able}, trained on texts",
        )
    return BLANKS if prompted.uses_sentinels else CONDITIONAL


def max_input_tokens(prompted: TrainedModel) -> int | None:
    """Return the number of tokens, special ones included, that a model reads of a text at once."""
    return prompted.limit if prompted.answers else prompted.max_context


def score_passages(
    prompted: TrainedModel, passages: Iterable[Passage], *, ranks: bool = False
) -> Iterator[PassageScore]:
    """Yield the score of each passage given the text around it.

    - A causal model and an n-gram model score the passage and what stands after it, given what
      stands before: of two passages in one text the likelier one makes the likelier text.
    - A masked model scores each token of the passage given the text on both sides. The tokens after
      it in its word are hidden too, else a word of rare pieces would be likely because its other
      pieces give it away.
    - ELECTRA's discriminator scores each token of the passage as genuine.
    - An encoder-decoder with sentinels scores the passage in place of a sentinel; a passage with
      nothing around it word by word. Another model with a source scores the passage and what
      stands after it as the answer to what stands before, or to its own first token.

    The end of a text is not scored. What stands before is cut from the left where the model can
    read no more; then, around a sentinel, what stands after it from the right.

    Args:
        prompted: the model.
        passages: the passages.
        ranks: whether to count the tokens that are at least as likely too.

    Raises:
        UserError: the model does not score texts, or a passage has no token that it can score.

    Reference: Salazar et al. 2020; Kauf & Ivanova 2023 (masked); Clark et al. 2020 (replaced).
    """
    method_of(prompted, ranks=ranks)
    scorer: Scorer = (
        DetectionScorer(prompted) if prompted.detects_replacements else scorer_of(prompted)
    )
    plans: deque[_Plan] = deque()  # of passages whose scores are not complete

    def items() -> Iterator[ScoringItem]:
        for passage in passages:
            plan = _plan(prompted, passage)
            plans.append(plan)
            yield from plan.items

    if not ranks:
        for plan, scored in _by_plan(plans, scorer.log_probs(items())):
            yield PassageScore(
                float(scored.sum()), len(scored), plan.unknown, np.empty(0, np.int64), plan.is_cut
            )
        return
    for plan, scored in _by_plan(plans, scorer.log_probs_and_ranks(items())):
        nats, token_ranks = scored.T
        yield PassageScore(
            float(nats.sum()), len(scored), plan.unknown, token_ranks.astype(np.int64), plan.is_cut
        )


def _by_plan(plans: deque[_Plan], results: Iterator[Array]) -> Iterator[tuple[_Plan, Array]]:
    """Yield each plan with the results of its items, of each item the first ones it counts."""
    for first in results:
        plan = plans.popleft()
        rest = [next(results) for _ in plan.items[1:]]
        parts = [part[:n] for part, n in zip([first, *rest], plan.counts, strict=True)]
        yield plan, np.concatenate(parts)


def tokens_of(prompted: TrainedModel, passage: Passage) -> tuple[int, ...]:
    """Return the tokens of a passage in its text.

    Raises:
        UserError: there is none.
    """
    ids, first, stop = _encoded(prompted, passage)
    return tuple(ids[first:stop].tolist())


def _encoded(prompted: TrainedModel, passage: Passage) -> tuple[Array, int, int]:
    """Return the tokens of the whole text, the passage's first, and the one after its last.

    A space before the passage may be a token of its own. It is the passage's, as it is part of the
    first token of other words: else options that split differently would not compare.
    """
    begin, end = passage.span
    ids, offsets = prompted.tokenizer.encode_with_offsets(passage.full_text)
    where = np.flatnonzero((offsets[:, 1] > begin) & (offsets[:, 0] < end))
    if not len(where):
        raise UserError(f"{prompted.name}: no token for {passage.text!r:.60}")
    first = int(where[0])
    while first and offsets[first - 1, 0] >= passage.context_characters:
        first -= 1
    return ids, first, int(where[-1]) + 1


def _plan(prompted: TrainedModel, passage: Passage) -> _Plan:
    ids, first, stop = _encoded(prompted, passage)
    most = len(ids) + 1  # tokens that count in an item
    if prompted.detects_replacements:
        items, is_cut = _original_items(prompted, ids, first, stop)
    elif prompted.continues:  # perhaps in place too, as GPT-BERT
        items, is_cut = _causal(prompted, ids, first)
        stop = len(ids)
    elif prompted.fills_in_place:
        items, is_cut = _masked(prompted, ids, first, stop)
        most = 1
    elif prompted.uses_sentinels:
        has_context = bool(passage.before.strip() or passage.after.strip())
        items, is_cut = _blanks(prompted, ids, first, stop, has_context=has_context)
    else:
        items, is_cut = _answer(prompted, ids, first)
        stop = len(ids)
    counts = [min(most, int(item.is_scored.sum())) for item in items]
    if not sum(counts):
        raise UserError(
            f"{prompted.name}: {passage.text!r:.60}: this {prompted.description} cannot score the "
            "first token of a text; give a longer one"
        )
    unknown = prompted.vocab.unknown
    return _Plan(items, counts, int((ids[first:stop] == unknown).sum()), is_cut)


# Each of these returns the items, and whether the model has no room for all of the text.


def _causal(prompted: TrainedModel, ids: Array, first: int) -> tuple[list[ScoringItem], bool]:
    """Return items that score the tokens from `first` on, given those before them."""
    whole = np.concatenate([prompted.prompt_prefix, ids])
    first = max(1, first + len(prompted.prompt_prefix))
    width = prompted.max_context
    start = max(0, len(whole) - 1 - width)  # the last window, which has the longest context
    if first > start:
        position = np.arange(start, len(whole))
        return [ScoringItem(whole[start:], position >= first)], start > 0
    items = []
    for window in scoring_windows(len(whole) - 1, width, max(1, width // 2), both_sides=False):
        read = whole[window.start : window.start + width + 1]
        position = window.start + np.arange(len(read))
        is_scored = (window.first < position) & (position <= window.stop) & (position >= first)
        if is_scored.any():
            items.append(ScoringItem(read, is_scored))
    return items, start > 0


def _masked(
    prompted: TrainedModel, ids: Array, first: int, stop: int
) -> tuple[list[ScoringItem], bool]:
    """Return an item for each token, in which it and the rest of its word are masked.

    All masked tokens are predicted, since some models see those that are not; the first counts.
    """
    whole = np.concatenate([prompted.bos, ids, prompted.eos])
    first, stop = first + len(prompted.bos), stop + len(prompted.bos)
    width, mask = prompted.max_context, prompted.vocab.id("[MASK]")
    items = []
    for window in scoring_windows(len(whole), width, max(1, width // 2), both_sides=True):
        read = whole[window.start : window.start + width]
        begin = max(window.first, first)
        for position in range(begin, min(window.stop, stop)):
            end = min(_end_of_word(prompted, whole, position, stop), window.start + len(read))
            place = window.start + np.arange(len(read))
            is_hidden = (place >= position) & (place < end)
            items.append(ScoringItem(read, is_hidden, np.where(is_hidden, mask, read)))
    return items, len(whole) > width


def _original_items(
    prompted: TrainedModel, ids: Array, first: int, stop: int
) -> tuple[list[ScoringItem], bool]:
    """Return items that score tokens as genuine."""
    whole = np.concatenate([prompted.bos, ids, prompted.eos])
    first, stop = first + len(prompted.bos), stop + len(prompted.bos)
    width = prompted.max_context
    items = []
    for window in scoring_windows(len(whole), width, max(1, width // 2), both_sides=True):
        read = whole[window.start : window.start + width]
        place = window.start + np.arange(len(read))
        is_scored = (place >= max(window.first, first)) & (place < min(window.stop, stop))
        if is_scored.any():
            items.append(ScoringItem(read, is_scored))
    return items, len(whole) > width


def _blanks(
    prompted: TrainedModel, ids: Array, first: int, stop: int, *, has_context: bool
) -> tuple[list[ScoringItem], bool]:
    """Return items in which a sentinel stands for the part, or for each of its words in turn."""
    sentinel = prompted.vocab.sentinels[:1]
    blanks = [(first, stop)]
    if not has_context:
        blanks, begin = [], first
        while begin < stop:
            end = _end_of_word(prompted, ids, begin, stop)
            blanks.append((begin, end))
            begin = end
    items, is_cut = [], False
    for begin, end in blanks:
        whole = np.concatenate([ids[:begin], sentinel, ids[end:]])
        target = np.concatenate([sentinel, ids[begin:end]])
        source = _source(prompted, whole, begin, len(target))
        is_cut |= len(source) < len(prompted.source_of(whole))
        items.append(ScoringItem(target, np.arange(len(target)) > 0, source))
    return items, is_cut


def _answer(prompted: TrainedModel, ids: Array, first: int) -> tuple[list[ScoringItem], bool]:
    """Return the item that scores the tokens from `first` on as the answer to those before."""
    first = max(1, first)
    before, target = ids[:first], ids[first:]
    source = _source(prompted, before, first, len(target))
    is_scored = np.ones(len(target), dtype=bool)
    items = [ScoringItem(target, is_scored, source)] if len(target) else []
    return items, len(source) < len(prompted.source_of(before))


def _source(prompted: TrainedModel, ids: Array, before: int, target: int) -> Array:
    """Return the source of a target, cut if the model has no room for both."""
    whole = prompted.source_of(ids)
    if prompted.limit is None:
        return whole
    excess = max(0, prompted.pair_length(len(whole), target) - prompted.limit)
    left = min(before, excess)
    source = prompted.source_of(ids[left : max(left, len(ids) - (excess - left))])
    prompted.check_pair(len(source), target)
    return source


def _end_of_word(prompted: TrainedModel, ids: Array, position: int, stop: int) -> int:
    """Return the position after the word of a token, at most `stop`."""
    after = np.flatnonzero(prompted.vocab.starts_word[ids[position + 1 : stop]])
    return position + 1 + int(after[0]) if len(after) else stop
