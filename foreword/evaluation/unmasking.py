"""Writing by filling masked positions, the surest first: the sampler of masked diffusion."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from foreword.data.rng import RowRng
from foreword.evaluation.sampling import Sampling, sample_tokens
from foreword.evaluation.starts import GeneratedTokens, Start, forbidden_tokens, unpadded_rows
from foreword.nn.precision import widest
from foreword.runs.trained_model import TrainedModel
from foreword.types import Array


def unmask(
    prompted: TrainedModel,
    starts: Sequence[Start],
    sampling: Sampling,
    stops: Array,
    min_tokens: int = 0,
) -> list[GeneratedTokens]:
    """Continue starts of one length, block by block (Nie et al. 2025, section 2.4).

    The model reads the text so far and [MASK] for all that is to come, up to a row of training;
    of a longer text it reads the end. Each step samples a token for each masked position of the
    block and keeps the surest, those to which the model gave most probability; the others stay
    masked. A text ends at its first stop token, once its block is full: only a model trained with
    `objective.end` has learned to write one.

    A text does not depend on those computed with it. Since the surest tokens are kept, texts are
    not samples of the distribution whose likelihood the training loss bounds.

    Args:
        prompted: a model of masked diffusion.
        starts: what texts begin with, of one length.
        sampling: the settings, of which `steps` and `block` are for this sampler.
        stops: the tokens that end a text.
        min_tokens: the fewest tokens before a stop token is allowed.
    """
    mask, tokens = prompted.vocab.id("[MASK]"), sampling.tokens
    rng = RowRng(sampling.seed, np.asarray([start.number for start in starts], np.int64))
    forbidden = forbidden_tokens(prompted, starts, stops)[:, None]  # (starts, 1, vocab)
    is_stop = torch.zeros(prompted.vocab.size, dtype=torch.bool, device=prompted.device)
    is_stop[torch.from_numpy(stops)] = True
    texts = np.stack([start.target for start in starts])
    begin, step = texts.shape[1], 0
    filled_at = np.zeros((len(starts), 0), np.int64)
    rows, done = np.arange(len(starts)), dict[int, GeneratedTokens]()
    steps_per_token = min(1.0, (sampling.steps or tokens) / tokens)
    while len(rows):
        # The block, and what the model reads: the end of the text, and masks.
        written = texts.shape[1] - begin
        length = prompted.recipe.packing.length
        ahead = min(tokens - written, max(length - texts.shape[1], -(-length // 2)))
        size = min(sampling.block, ahead)
        context = texts[:, max(0, texts.shape[1] + ahead - length) :]
        block = np.full((len(rows), size), mask)
        at = np.zeros((len(rows), size), np.int64)
        rest = np.full((len(rows), ahead - size), mask)
        early = torch.arange(written, written + size, device=prompted.device) < min_tokens
        never = forbidden[rows] | (early[:, None] & is_stop)  # (rows, size, vocab)
        # Fill it.
        steps = max(1, round(size * steps_per_token))
        for n in range(steps):
            step += 1
            ids = np.concatenate([context, block, rest], axis=1)
            logits = _logits(prompted, ids, context.shape[1], size).masked_fill(never, -torch.inf)
            chosen, sureness = _sample(logits, sampling, rng)
            is_open = block == mask
            count = -(-int(is_open[0].sum()) // (steps - n))
            order = np.argsort(np.where(is_open, -sureness, np.inf), axis=1, kind="stable")
            kept = order[:, :count]
            np.put_along_axis(block, kept, np.take_along_axis(chosen, kept, axis=1), axis=1)
            np.put_along_axis(at, kept, step, axis=1)
        # Leave out the texts that have ended.
        texts, filled_at = np.hstack([texts, block]), np.hstack([filled_at, at])
        ends = np.isin(texts[:, begin:], stops)
        is_over = ends.any(1) | (texts.shape[1] - begin >= tokens)
        for n in np.flatnonzero(is_over).tolist():
            stop = int(ends[n].argmax()) if ends[n].any() else tokens
            new = texts[n, begin : begin + stop]
            done[int(rows[n])] = GeneratedTokens(
                new, None, "end" if ends[n].any() else "tokens", filled_at[n, :stop]
            )
        rng = rng.select(~is_over)
        texts, filled_at, rows = texts[~is_over], filled_at[~is_over], rows[~is_over]
    return [done[n] for n in range(len(starts))]


def _logits(prompted: TrainedModel, ids: Array, first: int, size: int) -> Tensor:
    """Return the logits at `size` positions from `first` on, (rows, size, vocab)."""
    tokens, weights = unpadded_rows(ids), np.zeros(ids.shape, np.float32)
    example = prompted.in_place_example(tokens, tokens, weights)
    batch = prompted.recipe.layout.arrange(example, prompted.vocab)
    return prompted.logits(prompted.run_backbone(batch).states[:, first : first + size])


def _sample(logits: Tensor, sampling: Sampling, rng: RowRng) -> tuple[Array, Array]:
    """Return a token for each position, and its probability; (rows, size) each."""
    draws = torch.empty(0)
    if sampling.temperature:
        uniform = torch.from_numpy(rng.uniform(logits.shape[1])).flatten()
        draws = uniform.to(logits.device, widest(logits.device))
    tokens = sample_tokens(logits.flatten(0, 1), sampling, draws).view(logits.shape[:2])
    sureness = logits.log_softmax(-1).gather(2, tokens[..., None])[..., 0]
    return tokens.cpu().numpy(), sureness.cpu().double().numpy()
