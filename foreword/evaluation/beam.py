"""Beam search: an approximation of the likeliest text that extends the best few beginnings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foreword.errors import UserError
from foreword.evaluation.decoding import Generation, generation, starts_of, stops_of
from foreword.evaluation.memory_check import require_memory_to_search
from foreword.evaluation.starts import (
    GeneratedTokens,
    Start,
    Stopped,
    forbidden_tokens,
    groups_of_equal_length,
    next_token_batch,
)
from foreword.nn.cache import select
from foreword.nn.masks import CausalMask, FullMask
from foreword.nn.precision import widest
from foreword.runs.trained_model import TrainedModel
from foreword.settings.ranges import Count, LengthPenalty, Ranged
from foreword.types import Array, Batch

ROWS = 256  # beams in one batch


@dataclass(frozen=True)
class Beams(Ranged):
    """The settings of a search.

    Attributes:
        size: beams of each text; 1 is greedy.
        length_penalty: a text's log-probability is divided by its number of tokens, with the stop
            token, to this power; 0 prefers short texts, 1 is the mean.
        tokens: the maximum number of tokens to generate.

    Reference: Graves 2012; Sutskever et al. 2014, section 3.2; Wu et al. 2016, section 7, for the
    length penalty.
    """

    size: Count = 5
    length_penalty: LengthPenalty = 1.0
    tokens: Count = 100

    def score(self, text: GeneratedTokens) -> float:
        """Return the score that ranks texts."""
        assert text.log_probs is not None
        return float(text.log_probs.sum() / len(text.log_probs) ** self.length_penalty)


def generate(
    prompted: TrainedModel, prompts: Sequence[str], beams: Beams, samples: int = 1
) -> list[Generation]:
    """Return the `samples` likeliest texts that continue, or answer, each prompt, best first.

    Raises:
        UserError: as `foreword.evaluation.decoding.generate`; or more samples than beams.
    """
    if not 1 <= samples <= beams.size:
        raise UserError(
            f"--samples: {beams.size} beams give 1 to {beams.size} texts, got {samples}"
        )
    if prompted.unmasks:
        raise prompted.unable(
            "writes in any order, not by beams", "causal, encoder-decoder, n-gram"
        )
    starts = starts_of(prompted, prompts)
    require_memory_to_search(prompted, beams.size, beams.tokens, "--beams")
    by_start = search(prompted, starts, beams, stops_of(prompted))
    return [
        generation(prompted, prompt, start, text)
        for prompt, start, texts in zip(prompts, starts, by_start, strict=True)
        for text in texts[:samples]
    ]


def search(
    prompted: TrainedModel,
    starts: Sequence[Start],
    beams: Beams,
    stops: Array,
    min_tokens: int = 0,
    watch: Callable[[Array, Array], object] = lambda ids, nats: None,
) -> list[list[GeneratedTokens]]:
    """Return the likeliest texts found after each start, best first; at most one per beam.

    A search ends when as many texts have ended as there are beams. Starts of equal length are
    computed together, so nothing is padded.

    Args:
        prompted: the model.
        starts: the beginnings of the texts.
        beams: the settings of the search.
        stops: the tokens that end a text.
        min_tokens: the fewest tokens before a stop token is allowed.
        watch: called after each token with the beams of the starts that are still open: their
            tokens and the log-probability of each, both (starts, beams, tokens).

    Raises:
        UserError: a start is empty, or longer than the model can read.
    """
    by_start: dict[int, list[GeneratedTokens]] = {}
    for chunk in groups_of_equal_length(starts, max(1, ROWS // beams.size)):
        group = _Search(prompted, [starts[n] for n in chunk], beams, stops, min_tokens)
        by_start.update(zip(chunk, group.run(watch), strict=True))
    return [by_start[n] for n in range(len(starts))]


class _Search:
    """The searches after starts of one length.

    Each open search has `width` beams, which are consecutive rows of the batch.
    """

    def __init__(
        self,
        prompted: TrainedModel,
        starts: Sequence[Start],
        beams: Beams,
        stops: Array,
        min_tokens: int,
    ) -> None:
        self.prompted, self.beams, self.min_tokens = prompted, beams, min_tokens
        self.batch = next_token_batch(prompted, starts).to(prompted.device)
        device = self.batch.ids.device
        self.length = self.batch.ids.shape[1]
        self.stops = torch.from_numpy(stops).to(device)
        self.forbidden = forbidden_tokens(prompted, starts, stops)
        self.ended: list[list[GeneratedTokens]] = [[] for _ in starts]
        # The open searches, and of each beam the log-probability, the tokens and their nats.
        self.open = torch.arange(len(starts), device=device)
        dtype = widest(device)
        self.totals = torch.zeros(len(starts), 1, dtype=dtype, device=device)
        self.ids = torch.zeros(len(starts), 1, 0, dtype=torch.long, device=device)
        self.nats = torch.zeros(len(starts), 1, 0, dtype=dtype, device=device)

    def run(self, watch: Callable[[Array, Array], object]) -> list[list[GeneratedTokens]]:
        """Return the texts found after each start, best first."""
        cache: Any = None
        layout, vocab = self.prompted.recipe.layout, self.prompted.vocab
        positions = self.batch.positions[:, -1].cpu().numpy()
        source = None if self.batch.source is None else self.batch.source.ids.cpu().numpy()
        cross = None if self.batch.cross_mask is None else FullMask()
        stopped: Stopped = "tokens"
        for n in range(self.beams.tokens):
            # Extend the beams by one token each.
            hidden = self.prompted.run_backbone(self.batch, cache)
            rows = self._extend(self.prompted.logits(hidden.states[:, -1]))
            watch(self.ids.cpu().numpy(), self.nats.cpu().numpy())
            if not len(self.open):
                break
            before = rows.cpu().numpy()
            source = None if source is None else source[before]
            new = self.ids[:, :, -1].reshape(-1, 1)
            after = layout.next_positions(new.cpu().numpy(), positions[before], source, vocab)
            positions = after[:, -1]
            limit = self.prompted.limit
            if limit is not None and int(positions.max()) >= limit:
                stopped = "length"
                break
            # Continue with the new tokens alone, which attend to all cached tokens of their beams.
            cache = select(hidden.cache, rows)
            at = torch.from_numpy(after).to(new.device)
            self.batch = Batch(new, at, CausalMask(self.length + n), cross_mask=cross)
        # Beams without a stop token end here.
        for row in range(len(self.open)):
            for beam in torch.isfinite(self.totals[row]).nonzero()[:, 0].tolist():
                self._end(row, self.ids[row, beam], self.nats[row, beam], stopped)
        return [
            sorted(texts, key=self.beams.score, reverse=True)[: self.beams.size]
            for texts in self.ended
        ]

    def _extend(self, logits: Tensor) -> Tensor:
        """Extend the beams of each start by one token: by the best of all extensions.

        Returns:
            The row of the beam that each new one extends, (starts * beams,) int64, for the searches
            that are still open.
        """
        # Score every extension of every beam.
        rows, width, length = self.ids.shape
        size, vocab = self.beams.size, logits.shape[-1]
        nats = logits.log_softmax(-1).to(self.totals.dtype).view(rows, width, vocab)
        allowed = nats.masked_fill(self.forbidden[self.open][:, None], float("-inf"))
        if length < self.min_tokens:
            allowed[:, :, self.stops] = float("-inf")
        scores = (self.totals[:, :, None] + allowed).flatten(1)
        # Take enough of the best that `size` of them are not stop tokens.
        best, flat = scores.topk(min(size * (1 + len(self.stops)), scores.shape[1]), -1)
        beam, token = flat // vocab, flat % vocab
        is_stop = torch.isin(token, self.stops)
        new_nats = nats.flatten(1).gather(1, flat)
        # A stop token among the `size` best ends a text.
        ends = is_stop[:, :size] & torch.isfinite(best[:, :size])
        for row, rank in ends.nonzero().tolist():
            extended = int(beam[row, rank])
            log_probs = torch.cat([self.nats[row, extended], new_nats[row, rank, None]])
            self._end(row, self.ids[row, extended], log_probs, "end")
        # The `size` best others become the beams.
        others = torch.sort(is_stop.byte(), dim=1, stable=True).indices[:, :size]
        beam, token, best, new_nats = (
            values.gather(1, others) for values in (beam, token, best, new_nats)
        )
        best = best.masked_fill(is_stop.gather(1, others), float("-inf"))
        index = beam[:, :, None].expand(-1, -1, length)
        self.totals = best
        self.ids = torch.cat([self.ids.gather(1, index), token[:, :, None]], -1)
        self.nats = torch.cat([self.nats.gather(1, index), new_nats[:, :, None]], -1)
        # Close searches without a possible beam, and those with enough ended texts.
        is_open = torch.isfinite(best).any(1)
        counts = [len(self.ended[start]) for start in self.open.tolist()]
        is_open &= torch.tensor(counts, device=best.device) < size
        kept_rows = (torch.arange(rows, device=best.device)[:, None] * width + beam)[
            is_open
        ].flatten()
        self.open, self.totals = self.open[is_open], self.totals[is_open]
        self.ids, self.nats = self.ids[is_open], self.nats[is_open]
        return kept_rows

    def _end(self, row: int, ids: Tensor, log_probs: Tensor, stopped: Stopped) -> None:
        """Add a text to those that have ended."""
        text = GeneratedTokens(
            ids.cpu().numpy(), log_probs.cpu().numpy().astype(np.float64), stopped
        )
        self.ended[int(self.open[row])].append(text)
