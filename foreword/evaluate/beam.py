"""Beam search: of all texts the likeliest, as far as a few beginnings kept side by side show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from foreword.errors import UserError
from foreword.evaluate.decoding import (
    GeneratedTokens,
    Generation,
    Start,
    Stopped,
    forbidden_tokens,
    generation,
    groups_of_equal_length,
    next_token_batch,
    starts_of,
    stops_of,
)
from foreword.evaluate.memory_check import require_memory_to_search
from foreword.evaluate.prompting import PromptedModel
from foreword.nn.cache import select
from foreword.nn.masks import CausalMask, FullMask
from foreword.ranges import Count, LengthPenalty, Ranged
from foreword.types import Array, Batch

ROWS = 256  # beginnings computed at once


@dataclass(frozen=True)
class Beams(Ranged):
    """How a search goes.

    Attributes:
        size: beginnings kept of each text; 1 is greedy.
        length_penalty: a text's log-probability is divided by its number of tokens, the one that
            ends it included, to this power; 0 prefers short texts, 1 takes the mean.
        tokens: at most so many are written.

    Reference: Graves 2012; Sutskever et al. 2014, section 3.2; Wu et al. 2016, section 7, for why
    length wants a penalty.
    """

    size: Count = 5
    length_penalty: LengthPenalty = 1.0
    tokens: Count = 100

    def score(self, written: GeneratedTokens) -> float:
        """What texts are ranked by."""
        return float(written.log_probs.sum() / len(written.log_probs) ** self.length_penalty)


def generate(
    prompted: PromptedModel, prompts: Sequence[str], beams: Beams, samples: int = 1
) -> list[Generation]:
    """The likeliest texts that begin with, or answer, each prompt; `samples` of each, best first.

    Raises:
        UserError: as `foreword.evaluate.decoding.generate`; or more are asked for than beams.
    """
    if not 1 <= samples <= beams.size:
        raise UserError(f"--samples: {beams.size} beams give 1 to {beams.size}, got {samples}")
    starts = starts_of(prompted, prompts)
    require_memory_to_search(prompted, beams.size, beams.tokens, "--beams")
    found = search(prompted, starts, beams, stops_of(prompted))
    return [
        generation(prompted, prompt, start, written)
        for prompt, start, best in zip(prompts, starts, found, strict=True)
        for written in best[:samples]
    ]


def search(
    prompted: PromptedModel, starts: Sequence[Start], beams: Beams, stops: Array, least: int = 0
) -> list[list[GeneratedTokens]]:
    """The likeliest texts found after each start, best first; at most as many as beams.

    A search ends when as many texts have ended as there are beams. Starts of equal length are
    computed together, so nothing is padded.

    Args:
        prompted: the model.
        starts: where the texts begin.
        beams: how to search.
        stops: tokens that end a text.
        least: tokens that are written before one may.

    Raises:
        UserError: a start is empty, or longer than the model can read.
    """
    found: dict[int, list[GeneratedTokens]] = {}
    for chunk in groups_of_equal_length(starts, max(1, ROWS // beams.size)):
        group = _Search(prompted, [starts[n] for n in chunk], beams, stops, least)
        found.update(zip(chunk, group.run(), strict=True))
    return [found[n] for n in range(len(starts))]


class _Search:
    """The searches after starts of one length.

    Of each that goes on there are `width` beginnings, one behind the other in every tensor.
    """

    def __init__(
        self,
        prompted: PromptedModel,
        starts: Sequence[Start],
        beams: Beams,
        stops: Array,
        least: int,
    ) -> None:
        self.prompted, self.beams, self.least = prompted, beams, least
        self.batch = next_token_batch(prompted, starts).to(prompted.device)
        device = self.batch.ids.device
        self.length = self.batch.ids.shape[1]
        self.stops = torch.from_numpy(stops).to(device)
        self.forbidden = forbidden_tokens(prompted, starts, stops)
        self.ended: list[list[GeneratedTokens]] = [[] for _ in starts]
        # Which starts go on; and of their beginnings the log-probability, tokens, and that of each.
        self.going = torch.arange(len(starts), device=device)
        self.totals = torch.zeros(len(starts), 1, dtype=torch.float64, device=device)
        self.ids = torch.zeros(len(starts), 1, 0, dtype=torch.long, device=device)
        self.nats = torch.zeros(len(starts), 1, 0, dtype=torch.float64, device=device)

    def run(self) -> list[list[GeneratedTokens]]:
        """What was found after each start, best first."""
        cache: Any = None
        positions = self.batch.positions[:, -1:]
        cross = None if self.batch.cross_mask is None else FullMask()
        stopped: Stopped = "tokens"
        for n in range(self.beams.tokens):
            hidden = self.prompted.read(self.batch, cache)
            kept = self._extend(self.prompted.logits(hidden.states[:, -1]))
            if not len(self.going):
                break
            positions = positions[kept] + 1
            limit = self.prompted.limit
            if limit is not None and int(positions.max()) >= limit:
                stopped = "places"
                break
            cache = select(hidden.cache, kept)
            new = self.ids[:, :, -1].reshape(-1, 1)
            # The new token stands after all that is remembered, and sees all of it.
            self.batch = Batch(new, positions, CausalMask(self.length + n), cross_mask=cross)
        for row in range(len(self.going)):
            for beam in torch.isfinite(self.totals[row]).nonzero()[:, 0].tolist():
                self._end(row, self.ids[row, beam], self.nats[row, beam], stopped)
        return [
            sorted(texts, key=self.beams.score, reverse=True)[: self.beams.size]
            for texts in self.ended
        ]

    def _extend(self, logits: Tensor) -> Tensor:
        """Goes on by a token: the best of all that may follow the beginnings of each start.

        Args:
            logits: after each beginning, (starts * width, vocab).

        Returns:
            The beginnings that were gone on from, (starts * beams,) int64, of the starts that are
            not done.
        """
        rows, width, written = self.ids.shape
        size, vocab = self.beams.size, logits.shape[-1]
        nats = logits.log_softmax(-1).double().view(rows, width, vocab)
        allowed = nats.masked_fill(self.forbidden[self.going][:, None], float("-inf"))
        if written < self.least:
            allowed[:, :, self.stops] = float("-inf")
        scores = (self.totals[:, :, None] + allowed).flatten(1)
        # Enough that `size` of them end nothing.
        best, flat = scores.topk(min(size * (1 + len(self.stops)), scores.shape[1]), -1)
        beam, token = flat // vocab, flat % vocab
        is_stop = torch.isin(token, self.stops)
        new_nats = nats.flatten(1).gather(1, flat)
        ends = is_stop[:, :size] & torch.isfinite(best[:, :size])
        for row, rank in ends.nonzero().tolist():
            before = int(beam[row, rank])
            log_probs = torch.cat([self.nats[row, before], new_nats[row, rank, None]])
            self._end(row, self.ids[row, before], log_probs, "end")
        goes_on = torch.sort(is_stop.byte(), dim=1, stable=True).indices[:, :size]
        picked = [part.gather(1, goes_on) for part in (beam, token, best, new_nats)]
        beam, token, best, new_nats = picked
        best = best.masked_fill(is_stop.gather(1, goes_on), float("-inf"))
        along = beam[:, :, None].expand(-1, -1, written)
        self.totals = best
        self.ids = torch.cat([self.ids.gather(1, along), token[:, :, None]], -1)
        self.nats = torch.cat([self.nats.gather(1, along), new_nats[:, :, None]], -1)
        is_open = torch.isfinite(best).any(1)
        counts = [len(self.ended[start]) for start in self.going.tolist()]
        is_open &= torch.tensor(counts, device=best.device) < size
        kept = (torch.arange(rows, device=best.device)[:, None] * width + beam)[is_open].flatten()
        self.going, self.totals = self.going[is_open], self.totals[is_open]
        self.ids, self.nats = self.ids[is_open], self.nats[is_open]
        return kept

    def _end(self, row: int, ids: Tensor, log_probs: Tensor, stopped: Stopped) -> None:
        """Puts a text to those that have ended."""
        text = GeneratedTokens(ids.cpu().numpy(), log_probs.cpu().numpy(), stopped)
        self.ended[int(self.going[row])].append(text)
