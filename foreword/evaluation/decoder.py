"""Autoregressive decoding of a few texts together, a few tokens at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from foreword.data.rng import RowRng
from foreword.errors import UserError
from foreword.evaluation.continuation import Continuation
from foreword.evaluation.drafts import Drafts
from foreword.evaluation.sampling import Sampling, sample_tokens
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
    """How texts go on and end; see `foreword.evaluation.decoding.decode`."""

    sampling: Sampling
    stops: Array
    min_tokens: int
    scores: bool


@dataclass
class _Text:
    """A text that is being generated."""

    number: int  # among the starts
    last: int  # the token that was read last
    drafts: Drafts
    ids: list[int] = field(default_factory=list)
    nats: list[float] = field(default_factory=list)
    guesses: list[int] = field(default_factory=list)  # that were read after the last token
    stopped: Stopped | None = None


class Decoder:
    """The decoding of a few starts.

    Args:
        prompted: the model.
        starts: of equal length, unless the model's cache can be ragged.
        limits: how the texts go on and end.
    """

    def __init__(self, prompted: TrainedModel, starts: Sequence[Start], limits: TextLimits) -> None:
        self.prompted, self.limits = prompted, limits
        # Read the starts, those of equal length together: rows are in the order of the groups.
        groups = list(groups_of_equal_length(starts, len(starts)))
        batches = [next_token_batch(prompted, [starts[n] for n in group]) for group in groups]
        self.model = Continuation(prompted, batches)
        order = [n for group in groups for n in group]
        self.texts = [
            _Text(n, int(ids[-1]), Drafts(_read(starts[n])))
            for n, ids in zip(order, (row for batch in batches for row in batch.ids), strict=True)
        ]
        self.forbidden = _Forbidden(prompted, starts, limits.stops)
        self.stops = set(limits.stops.tolist())
        self.rng = RowRng(limits.sampling.seed, np.array([s.number for s in starts], np.int64))
        self.draws: list[Array] = []  # of each token of the texts: a number for each start

    def run(self) -> list[GeneratedTokens]:
        """Return the text after each start."""
        open_texts = self.texts
        self._go_on(open_texts)
        while open_texts := self._unfinished(open_texts):
            self.model.read(self._next(open_texts))
            self.model.accept(np.asarray(self._go_on(open_texts), np.int64))
        ordered = sorted(self.texts, key=lambda text: text.number)
        return [self._generated(text) for text in ordered]

    def _go_on(self, texts: Sequence[_Text]) -> list[int]:
        """Add to each text the tokens that follow what was read last; return how many."""
        extensions = zip(texts, *self._choose(texts), strict=True)
        return [self._extend(text, ids, nats) for text, ids, nats in extensions]

    def _unfinished(self, texts: Sequence[_Text]) -> list[_Text]:
        """Return the texts that have not ended; the model forgets the others."""
        limit = self.prompted.limit
        for text, position in zip(texts, self.model.positions.tolist(), strict=True):
            if text.stopped is None and limit is not None and position + 1 >= limit:
                text.stopped = "length"
        rows = [n for n, text in enumerate(texts) if text.stopped is None]
        if 0 < len(rows) < len(texts):
            self.model.keep(np.asarray(rows))
        return [texts[n] for n in rows]

    def _choose(self, texts: Sequence[_Text]) -> tuple[list[list[int]], list[list[float]]]:
        """Return the token that follows each one that was read last, and its log-probability."""
        states, limits = self.model.states, self.limits
        rows, count = states.shape[:2]
        logits = self.prompted.logits(states.flatten(0, 1))  # (rows * count, vocab)
        normaliser = logits.logsumexp(-1, keepdim=True) if limits.scores else None
        # Rule tokens out, and choose.
        self.forbidden.rule_out(logits, [text.number for text in texts], count)
        is_early = [len(text.ids) + k < limits.min_tokens for text in texts for k in range(count)]
        if any(is_early):
            early = torch.tensor(is_early, device=logits.device)
            for stop in limits.stops.tolist():
                logits[early, stop] = float("-inf")
        if self.prompted.is_count_based and logits.isneginf().all(-1).any():
            name = self.prompted.name
            raise UserError(f"{name}: after this context only [UNK] has probability")
        tokens = sample_tokens(logits, limits.sampling, self._draws_of(texts, count))
        ids = tokens.view(rows, count).tolist()
        if normaliser is None:
            return ids, [[] for _ in ids]
        nats = logits.gather(1, tokens[:, None]) - normaliser
        return ids, nats.view(rows, count).tolist()

    def _draws_of(self, texts: Sequence[_Text], count: int) -> Tensor:
        """Return the uniform number that chooses each token, (rows * count,); none if greedy."""
        if self.limits.sampling.temperature == 0:
            return torch.empty(0)
        while len(self.draws) < max(len(text.ids) for text in texts) + count:
            self.draws.append(self.rng.uniform(1)[:, 0])
        numbers = [
            self.draws[len(text.ids) + k][text.number] for text in texts for k in range(count)
        ]
        device = self.prompted.device
        return torch.tensor(numbers, dtype=widest(device), device=device)

    def _extend(self, text: _Text, ids: list[int], nats: list[float]) -> int:
        """Add the chosen tokens to a text, up to a wrong guess or its end; return how many."""
        right = 0
        while right < len(text.guesses) and text.guesses[right] == ids[right]:
            right += 1
        text.drafts.verified(len(text.guesses), right)
        new = ids[: right + 1]
        for n, token in enumerate(new):
            text.nats += nats[n : n + 1]
            if token in self.stops:
                text.stopped = "end"
                break
            text.ids.append(token)
            if len(text.ids) == self.limits.sampling.tokens:
                text.stopped = "tokens"
                break
        text.drafts.extend(new)
        text.last = new[-1]
        return len(new)

    def _next(self, texts: Sequence[_Text]) -> Array:
        """Return the tokens to read: the last of each text, then guesses, (rows, tokens)."""
        can_guess = self.model.can_read_ahead
        most = min(AHEAD, AT_ONCE // len(texts)) - 1 if can_guess else 0
        if self.prompted.limit is not None:
            most = min(most, self.prompted.limit - 2 - int(self.model.positions.max()))
        for text in texts:
            left = self.limits.sampling.tokens - len(text.ids) - 1
            text.guesses = text.drafts.guess(min(most, left))
        # As many as half of the texts have, since each is read for all.
        count = sorted(len(text.guesses) for text in texts)[(len(texts) - 1) // 2]
        for text in texts:
            text.guesses = text.guesses[:count]
        rows = [[text.last, *text.guesses] for text in texts]
        return np.asarray([row + row[-1:] * (1 + count - len(row)) for row in rows], np.int64)

    def _generated(self, text: _Text) -> GeneratedTokens:
        assert text.stopped is not None
        ids = np.asarray(text.ids, np.int64)
        log_probs = np.asarray(text.nats, np.float64) if self.limits.scores else None
        return GeneratedTokens(ids, log_probs, text.stopped)


def _read(start: Start) -> list[int]:
    """Return all tokens of a start."""
    source: list[int] = [] if start.source is None else start.source.tolist()
    return [*source, *start.target.tolist()]


class _Forbidden:
    """The tokens that no text, or not the text of every start, may have."""

    def __init__(self, prompted: TrainedModel, starts: Sequence[Start], stops: Array) -> None:
        forbidden = forbidden_tokens(prompted, starts, stops)
        self.everywhere = forbidden.all(0).nonzero()[:, 0]
        self.elsewhere = forbidden.index_fill(1, self.everywhere, False)
        self.differ = bool(self.elsewhere.any())

    def rule_out(self, logits: Tensor, numbers: Sequence[int], count: int) -> None:
        """Set the forbidden of the logits of `count` tokens of each start to -inf."""
        logits.index_fill_(1, self.everywhere, float("-inf"))
        if self.differ:
            rows = self.elsewhere[list(numbers)].repeat_interleave(count, 0)
            logits.masked_fill_(rows, float("-inf"))
