"""Autoregressive decoding of a few texts together, a few tokens at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from foreword.data.rng import RowRng
from foreword.errors import UserError
from foreword.evaluation.continuation import Continuation
from foreword.evaluation.drafts import Drafts
from foreword.evaluation.sampling import Sampling, sample_tokens
from foreword.evaluation.scorer import LOGITS_AT_ONCE
from foreword.evaluation.starts import (
    GeneratedTokens,
    Start,
    Stopped,
    forbidden_tokens,
    groups_of_equal_length,
    next_token_batch,
)
from foreword.nn.precision import widest
from foreword.runs.trained_model import TrainedModel
from foreword.types import Array

AHEAD, AT_ONCE = 8, 64  # the most tokens to read at once, of a text and of all
ONE_THREAD = 1 << 28  # multiplications of a step that are not worth a second thread


@contextmanager
def threads_for(prompted: TrainedModel, rows: int) -> Iterator[None]:
    """Use one CPU thread where a step ends before a second thread has woken."""
    threads = torch.get_num_threads()
    is_small = rows * prompted.model.count_parameters() < ONE_THREAD
    if prompted.device.type == "cpu" and is_small:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True)
class TextLimits:
    """How texts go on and end; see `foreword.evaluation.decoding.decode`.

    Attributes:
        sampling: the settings of sampling.
        min_tokens: the fewest tokens before a stop token is allowed.
        scores: whether to give the tokens' log-probabilities.
        alternatives: number of likeliest tokens to give in place of each, with `scores`.
        scores_start: whether to give them for the tokens of the start too.
    """

    sampling: Sampling
    min_tokens: int = 0
    scores: bool = False
    alternatives: int = 0
    scores_start: bool = False


Alternatives = list[tuple[int, float]]  # likeliest tokens and their nats


@dataclass(eq=False)
class DecodedText:
    """A text that is being generated.

    Attributes:
        limits: how it goes on and ends.
        ids: the new tokens, without the stop token.
        nats: the model's log-probability of each, and of the stop token; with `limits.scores`.
        alternatives: the likeliest tokens in place of each; with `limits.alternatives`.
        start_nats: log-probabilities of the start's tokens after the first; if asked for.
        start_alternatives: the likeliest tokens in place of each of these.
        stopped: what ended it; None while it goes on.
        end: the stop token that ended it, if one did.
    """

    limits: TextLimits
    ids: list[int] = field(default_factory=list)
    nats: list[float] = field(default_factory=list)
    alternatives: list[Alternatives] = field(default_factory=list)
    start_nats: list[float] = field(default_factory=list)
    start_alternatives: list[Alternatives] = field(default_factory=list)
    stopped: Stopped | None = None
    end: int | None = None

    def generated(self) -> GeneratedTokens:
        """Return what was generated, once it is stopped."""
        assert self.stopped is not None
        log_probs = np.asarray(self.nats, np.float64) if self.limits.scores else None
        return GeneratedTokens(np.asarray(self.ids, np.int64), log_probs, self.stopped)


class _Draws:
    """The uniform numbers that choose the tokens of a few texts."""

    def __init__(self, seeds: Sequence[int], numbers: Sequence[int]) -> None:
        pairs = [np.asarray(values, np.int64) for values in (seeds, numbers)]
        self._rngs = [
            (np.flatnonzero(pairs[0] == seed), RowRng(seed, pairs[1][pairs[0] == seed]))
            for seed in dict.fromkeys(seeds)
        ]
        self._drawn: list[Array] = []  # of each token: a number for each text

    def of(self, text: int, token: int) -> float:
        while len(self._drawn) <= token:
            drawn = np.empty(sum(len(texts) for texts, _ in self._rngs))
            for texts, rng in self._rngs:
                drawn[texts] = rng.uniform(1)[:, 0]
            self._drawn.append(drawn)
        return float(self._drawn[token][text])


@dataclass(eq=False)
class _Row:
    """A text as a row of a batch."""

    text: DecodedText
    start: Start
    draws: _Draws
    number: int  # among those of `draws`
    forbidden: Tensor  # (vocab,) bool
    drafts: Drafts
    last: int  # the token that was read last
    guesses: list[int] = field(default_factory=list)  # that were read after the last token


class TextGroup:
    """Texts that are read together, one a row, a few tokens at a time.

    Args:
        prompted: the model.
        stops: the tokens that end a text.
        rows: their starts are of equal length, unless the model's cache can be ragged.
    """

    def __init__(self, prompted: TrainedModel, stops: Array, rows: Sequence[_Row]) -> None:
        self.prompted, self.stops = prompted, frozenset(stops.tolist())
        # Read the starts, those of equal length together: rows are in the order of the groups.
        starts = [row.start for row in rows]
        equal = [[rows[n] for n in group] for group in groups_of_equal_length(starts, len(starts))]
        batches = [next_token_batch(prompted, [row.start for row in group]) for group in equal]
        self._model = Continuation(prompted, batches)
        self._rows = [row for group in equal for row in group]
        for row, ids in zip(
            self._rows, (ids for batch in batches for ids in batch.ids), strict=True
        ):
            row.last = int(ids[-1])
        for group, states in zip(equal, self._model.start_states, strict=True):
            for row, row_states in zip(group, states, strict=True):
                if row.text.limits.scores_start:
                    self._score_start(row, row_states)
        self._model.start_states = []
        self._forbidden = _Forbidden([row.forbidden for row in self._rows])
        self._go_on()
        self._leave_out_finished()

    @property
    def texts(self) -> list[DecodedText]:
        """The texts that go on."""
        return [row.text for row in self._rows]

    @property
    def source_length(self) -> int:
        """The length of every text's source, 0 without."""
        return 0 if self._rows[0].start.source is None else len(self._rows[0].start.source)

    def step(self) -> None:
        """Read the last token of each text, and add one that follows, or more that were guessed.

        Raises:
            UserError: a count-based model has no token to go on with.
        """
        self._model.read(self._next())
        self._model.accept(np.asarray(self._go_on(), np.int64))
        self._leave_out_finished()

    def join(self, other: TextGroup) -> None:
        """Add the texts of another group, with sources of the same length; the cache is ragged."""
        self._model.join(other._model)
        self._rows += other._rows
        self._forbidden = _Forbidden([row.forbidden for row in self._rows])

    def keep(self, texts: Collection[DecodedText]) -> None:
        """Leave all other texts out; the model forgets them."""
        rows = [n for n, row in enumerate(self._rows) if row.text in texts]
        if 0 < len(rows) < len(self._rows):
            self._model.keep(np.asarray(rows))
            self._forbidden = _Forbidden([self._rows[n].forbidden for n in rows])
        self._rows = [self._rows[n] for n in rows]

    def _go_on(self) -> list[int]:
        """Add to each text the tokens that follow what was read last; return how many."""
        extensions = zip(self._rows, *self._choose(), strict=True)
        return [_extend(row, ids, self.stops, *scores) for row, ids, scores in extensions]

    def _leave_out_finished(self) -> None:
        limit = self.prompted.limit
        for row, position in zip(self._rows, self._model.positions.tolist(), strict=True):
            if row.text.stopped is None and limit is not None and position + 1 >= limit:
                row.text.stopped = "length"
        self.keep({row.text for row in self._rows if row.text.stopped is None})

    def _choose(self) -> tuple[list[list[int]], list[tuple[list[float], list[Alternatives]]]]:
        """Return the tokens that follow those that were read last, and their scores."""
        rows, count = self._rows, self._model.states.shape[1]
        logits = self.prompted.logits(self._model.states.flatten(0, 1))  # (rows * count, vocab)
        is_scored = any(row.text.limits.scores for row in rows)
        normaliser = logits.logsumexp(-1, keepdim=True) if is_scored else None
        best = _best(logits, normaliser, max(row.text.limits.alternatives for row in rows))
        # Rule tokens out, and choose.
        self._forbidden.rule_out(logits, count)
        is_early = [
            len(row.text.ids) + k < row.text.limits.min_tokens for row in rows for k in range(count)
        ]
        if any(is_early):
            early = torch.tensor(is_early, device=logits.device)
            for stop in self.stops:
                logits[early, stop] = float("-inf")
        if self.prompted.is_count_based and logits.isneginf().all(-1).any():
            name = self.prompted.name
            raise UserError(f"{name}: after this context only [UNK] has probability")
        tokens = self._sample(logits, count)
        ids = tokens.view(len(rows), count).tolist()
        if normaliser is None:
            return ids, [([], [])] * len(rows)
        nats = (logits.gather(1, tokens[:, None]) - normaliser).view(len(rows), count).tolist()
        of_rows = [best[n * count : (n + 1) * count] for n in range(len(rows))]
        return ids, list(zip(nats, of_rows, strict=True))

    def _sample(self, logits: Tensor, count: int) -> Tensor:
        """Return a token for each row of logits, texts with equal settings together."""
        ways: dict[Sampling, list[int]] = {}
        for n, row in enumerate(self._rows):
            way = replace(row.text.limits.sampling, tokens=1, seed=0)
            ways.setdefault(way, []).extend(range(n * count, (n + 1) * count))
        tokens = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
        for way, where in ways.items():
            some = logits if len(ways) == 1 else logits[where]
            tokens[where] = sample_tokens(some, way, self._draws_of(way, where, count))
        return tokens

    def _draws_of(self, way: Sampling, where: Sequence[int], count: int) -> Tensor:
        """Return the uniform numbers that choose tokens; none if greedy."""
        if way.temperature == 0:
            return torch.empty(0)
        numbers = []
        for n in where:
            row = self._rows[n // count]
            numbers.append(row.draws.of(row.number, len(row.text.ids) + n % count))
        device = self.prompted.device
        return torch.tensor(numbers, dtype=widest(device), device=device)

    def _next(self) -> Array:
        """Return the tokens to read: the last of each text, then guesses, (rows, tokens)."""
        rows = self._rows
        most = min(AHEAD, AT_ONCE // len(rows)) - 1 if self._model.can_read_ahead else 0
        if self.prompted.limit is not None:
            most = min(most, self.prompted.limit - 2 - int(self._model.positions.max()))
        for row in rows:
            left = row.text.limits.sampling.tokens - len(row.text.ids) - 1
            row.guesses = row.drafts.guess(min(most, left))
        # As many as half of the texts have, since each is read for all.
        count = sorted(len(row.guesses) for row in rows)[(len(rows) - 1) // 2]
        for row in rows:
            row.guesses = row.guesses[:count]
        tokens = [[row.last, *row.guesses] for row in rows]
        return np.asarray([ids + ids[-1:] * (1 + count - len(ids)) for ids in tokens], np.int64)

    def _score_start(self, row: _Row, states: Tensor) -> None:
        """Score the tokens of a start after its first, from the states (length, d_model)."""
        text, at_once = row.text, max(1, LOGITS_AT_ONCE // self.prompted.vocab.size)
        following = torch.from_numpy(row.start.target[1:]).to(states.device)
        for at in range(0, len(following), at_once):
            tokens = following[at : at + at_once]
            logits = self.prompted.logits(states[at : at + len(tokens)])
            normaliser = logits.logsumexp(-1, keepdim=True)
            text.start_nats += (logits.gather(1, tokens[:, None]) - normaliser)[:, 0].tolist()
            text.start_alternatives += _best(logits, normaliser, text.limits.alternatives)


class Decoder:
    """The decoding of texts, which others may join at any time.

    Args:
        prompted: the model.
        stops: the tokens that end a text.

    Attributes:
        groups: the texts that go on, by what can be read together.
    """

    def __init__(self, prompted: TrainedModel, stops: Array) -> None:
        self.prompted, self.stops = prompted, stops
        self.groups: list[TextGroup] = []

    def add(self, starts: Sequence[Start], limits: Sequence[TextLimits]) -> list[DecodedText]:
        """Read some starts, and return their texts, each with its first token.

        Where the model's cache can be ragged, they go on together with texts that were there.

        Raises:
            UserError: a start is empty, or longer than the model can read.
        """
        seeds = [each.sampling.seed for each in limits]
        draws = _Draws(seeds, [start.number for start in starts])
        forbidden = forbidden_tokens(self.prompted, starts, self.stops)
        rows = [
            _Row(DecodedText(limits[n]), start, draws, n, forbidden[n], Drafts(_read(start)), 0)
            for n, start in enumerate(starts)
        ]
        is_ragged = self.prompted.recipe.model.cache_can_be_ragged
        for group in groups_of_equal_length(starts, len(starts), by_source=is_ragged):
            new = TextGroup(self.prompted, self.stops, [rows[n] for n in group])
            length = new.source_length if new.texts else None
            others = (old for old in self.groups if is_ragged and old.source_length == length)
            if (other := next(others, None)) is not None:
                other.join(new)
            elif new.texts:
                self.groups.append(new)
        return [row.text for row in rows]

    def drop(self, texts: Collection[DecodedText]) -> None:
        """Leave texts out that nobody waits for."""
        for group in self.groups:
            group.keep({text for text in group.texts if text not in texts})
        self.groups = [group for group in self.groups if group.texts]

    def step(self) -> None:
        """Extend every text that goes on."""
        for group in self.groups:
            group.step()
        self.groups = [group for group in self.groups if group.texts]


def _read(start: Start) -> list[int]:
    """Return all tokens of a start."""
    source: list[int] = [] if start.source is None else start.source.tolist()
    return [*source, *start.target.tolist()]


def _best(logits: Tensor, normaliser: Tensor | None, most: int) -> list[Alternatives]:
    """Return the likeliest tokens of each row with their nats; none if none are asked for."""
    if not most or normaliser is None:
        return [[] for _ in logits]
    best = (logits - normaliser).topk(min(most, logits.shape[-1]), dim=-1)
    rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [list(zip(ids, nats, strict=True)) for ids, nats in rows]


def _extend(
    row: _Row, ids: list[int], stops: Collection[int], nats: list[float], best: list[Alternatives]
) -> int:
    """Add the chosen tokens to a text, up to a wrong guess or its end; return how many."""
    text, right = row.text, 0
    while right < len(row.guesses) and row.guesses[right] == ids[right]:
        right += 1
    row.drafts.verified(len(row.guesses), right)
    new = ids[: right + 1]
    for n, token in enumerate(new):
        if text.limits.scores:
            text.nats += nats[n : n + 1]
            text.alternatives.append(best[n][: text.limits.alternatives])
        if token in stops:
            text.stopped, text.end = "end", token
            break
        text.ids.append(token)
        if len(text.ids) == text.limits.sampling.tokens:
            text.stopped = "tokens"
            break
    row.drafts.extend(new)
    row.last = new[-1]
    return len(new)


class _Forbidden:
    """The tokens that no text, or not every text, of a group may have."""

    def __init__(self, rows: Sequence[Tensor]) -> None:
        forbidden = torch.stack(list(rows))  # (rows, vocab)
        self.everywhere = forbidden.all(0).nonzero()[:, 0]
        self.elsewhere = forbidden.index_fill(1, self.everywhere, False)
        self.differ = bool(self.elsewhere.any())

    def rule_out(self, logits: Tensor, count: int) -> None:
        """Set the forbidden of the logits of `count` tokens of each text to -inf."""
        logits.index_fill_(1, self.everywhere, float("-inf"))
        if self.differ:
            logits.masked_fill_(self.elsewhere.repeat_interleave(count, 0), float("-inf"))
