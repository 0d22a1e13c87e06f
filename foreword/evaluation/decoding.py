"""Autoregressive decoding with a key-value cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from foreword.data.rng import RowRng
from foreword.errors import UserError
from foreword.evaluation.memory_check import require_memory_to_sample
from foreword.evaluation.prompting import PromptedModel
from foreword.evaluation.sampling import Sampling, sample_tokens
from foreword.nn.masks import CausalMask, FullMask
from foreword.nn.precision import widest
from foreword.types import Array, Batch, Example, Tokens

Stopped = Literal["end", "tokens", "length"]


@dataclass(frozen=True)
class Start:
    """The beginning of a text to generate.

    Attributes:
        source: the source that the model reads, (length,) int64, or None.
        target: the tokens that the text begins with, (length,) int64.
        number: the index of the sample of its prompt; each samples different random numbers.
    """

    source: Array | None
    target: Array
    number: int = 0


@dataclass(frozen=True)
class GeneratedTokens:
    """The tokens generated after a start.

    Attributes:
        ids: the new tokens, without the stop token; (length,) int64.
        log_probs: the model's log-probability of each, and of the stop token if there is one;
            (length,) or (length + 1,) nats.
        stopped: what ended the text: `end` a stop token, `tokens` the maximum number, `length` the
            model's last position.
    """

    ids: Array
    log_probs: Array
    stopped: Stopped


@dataclass(frozen=True)
class Generation:
    """A prompt and its continuation or answer.

    Attributes:
        prompt: the prompt.
        text: the generated text.
        tokens: its number of tokens.
        stopped: what ended it; see `GeneratedTokens`.
    """

    prompt: str
    text: str
    tokens: int
    stopped: Stopped


def generate(
    prompted: PromptedModel, prompts: Sequence[str], sampling: Sampling, samples: int = 1
) -> list[Generation]:
    """Return `samples` texts that continue, or answer, each prompt, prompt by prompt.

    A causal model continues the prompt. A model with a source reads the prompt as its source, after
    a mode token as in training; if all its sources have sentinels and the prompt has none, one is
    appended, so that the model continues the text. Special tokens that do not end a text are never
    generated. The texts of a prompt do not depend on the other prompts.

    Raises:
        UserError: the model fills blanks, a prompt is empty or too long, or the texts do not fit
            into memory.
    """
    starts = starts_of(prompted, prompts)
    require_memory_to_sample(prompted, len(starts) * samples, sampling.tokens)
    numbered = [replace(start, number=n) for start in starts for n in range(samples)]
    decoded = decode(prompted, numbered, sampling, stops_of(prompted))
    return [
        generation(prompted, prompts[n // samples], start, new)
        for n, (start, new) in enumerate(zip(numbered, decoded, strict=True))
    ]


def generation(
    prompted: PromptedModel, prompt: str, start: Start, new: GeneratedTokens
) -> Generation:
    """Return the tokens generated after a prompt as text."""
    return Generation(prompt, text_of(prompted, start, new.ids), len(new.ids), new.stopped)


def starts_of(prompted: PromptedModel, prompts: Sequence[str]) -> list[Start]:
    """Return the start of each prompt's text; see `generate`.

    Raises:
        UserError: the model fills blanks, or a prompt is empty.
    """
    prompted.require_token_head()
    if prompted.fills_in_place and not prompted.continues:
        raise UserError(
            f"{prompted.name}: this {prompted.family} does not generate text; it fills blanks: "
            'foreword fill RUN "The [MASK] sat on the mat."'
        )
    return [start_of(prompted, prompt) for prompt in prompts]


def start_of(prompted: PromptedModel, prompt: str) -> Start:
    """Return the start of a prompt's text; see `generate`.

    Raises:
        UserError: the prompt is empty, and the model reads a source.
    """
    ids = prompted.tokenizer.encode(prompt, special=True)
    if prompted.continues:
        target = np.concatenate([prompted.prompt_prefix, ids])
        # A model whose documents have no first token still needs one to predict from.
        return Start(None, target if len(target) else prompted.eos)
    if not len(ids):
        raise UserError("the prompt is empty, and this model requires a source; give some text")
    if prompted.reads_plain or np.isin(ids, prompted.vocab.sentinels).any():
        return Start(prompted.source_of(ids), ids[:0])
    sentinel = prompted.vocab.sentinels[:1]
    return Start(prompted.source_of(np.concatenate([ids, sentinel])), sentinel)


def stops_of(prompted: PromptedModel) -> Array:
    """Return the tokens that end a text."""
    special = [prompted.vocab.special[n] for n in ("</s>",) if n in prompted.vocab.special]
    return np.unique([*special, *prompted.eos, *prompted.end_token]).astype(np.int64)


def text_of(prompted: PromptedModel, start: Start, ids: Array) -> str:
    """Return new tokens as the text that follows the start's."""
    to_text = prompted.tokenizer.decode
    if start.source is not None and not len(start.target):
        has_sentinels = np.isin(ids, prompted.vocab.sentinels).any()
        return to_text(ids, skip_special=not has_sentinels)
    # The space before the first new token appears only if it is decoded with the start.
    before, whole = to_text(start.target), to_text(np.concatenate([start.target, ids]))
    return whole[len(before) :] if whole.startswith(before) else to_text(ids)


def decode(
    prompted: PromptedModel,
    starts: Sequence[Start],
    sampling: Sampling,
    stops: Array,
    min_tokens: int = 0,
) -> list[GeneratedTokens]:
    """Continue each start.

    Starts of equal length are computed together, so nothing is padded.

    Args:
        prompted: the model.
        starts: the beginnings of the texts.
        sampling: the settings of sampling.
        stops: the tokens that end a text.
        min_tokens: the fewest tokens before a stop token is allowed.

    Raises:
        UserError: a start is empty, or longer than the model can read.
    """
    decoded: dict[int, GeneratedTokens] = {}
    for chunk in groups_of_equal_length(starts, 64):
        rows = _decode_group(prompted, [starts[n] for n in chunk], sampling, stops, min_tokens)
        decoded.update(zip(chunk, rows, strict=True))
    return [decoded[n] for n in range(len(starts))]


def groups_of_equal_length(starts: Sequence[Start], size: int) -> Iterator[list[int]]:
    """Yield the indices of starts of equal length, at most `size` at a time."""
    groups: dict[tuple[int, int], list[int]] = {}
    for n, start in enumerate(starts):
        key = (-1 if start.source is None else len(start.source), len(start.target))
        groups.setdefault(key, []).append(n)
    for members in groups.values():
        for at in range(0, len(members), size):
            yield members[at : at + size]


def _decode_group(
    prompted: PromptedModel,
    starts: Sequence[Start],
    sampling: Sampling,
    stops: Array,
    min_tokens: int,
) -> list[GeneratedTokens]:
    """Continue starts of one length as one batch."""
    batch = next_token_batch(prompted, starts).to(prompted.device)
    rows, length = batch.ids.shape
    forbidden = forbidden_tokens(prompted, starts, stops)
    stop_ids = torch.from_numpy(stops).to(prompted.device)
    rng = RowRng(sampling.seed, np.array([start.number for start in starts], dtype=np.int64))
    positions = batch.positions[:, -1:]
    # The state of decoding: positions, unfinished rows, and the tokens of all rows.
    is_unfinished = torch.ones(rows, dtype=torch.bool, device=prompted.device)
    ids: list[Tensor] = []
    log_probs: list[Tensor] = []
    cache: Any = None
    stopped: Stopped = "tokens"
    for n in range(sampling.tokens):
        # Predict and sample the next token of each row.
        hidden = prompted.run_backbone(batch, cache)
        cache = hidden.cache
        logits = prompted.logits(hidden.states[:, -1])  # (rows, vocab)
        allowed = logits.masked_fill(forbidden, float("-inf"))
        if n < min_tokens:
            allowed[:, stop_ids] = float("-inf")
        if prompted.is_count_based and allowed.isneginf().all(-1).any():
            raise UserError(f"{prompted.name}: after this context only [UNK] has probability")
        draws = torch.from_numpy(rng.uniform(1)[:, 0])
        draws = draws.to(widest(prompted.device)).to(prompted.device)
        new = sample_tokens(allowed, sampling, draws)
        ids.append(new)
        log_probs.append(logits.log_softmax(-1).gather(1, new[:, None])[:, 0])
        # Stop if every row has ended or no position is left.
        is_unfinished &= ~torch.isin(new, stop_ids)
        if not is_unfinished.any() or n + 1 == sampling.tokens:
            break
        positions = positions + 1
        if prompted.limit is not None and int(positions.max()) >= prompted.limit:
            stopped = "length"
            break
        cross = None if batch.cross_mask is None else FullMask()
        # Continue with the new token alone, which attends to all cached tokens.
        batch = Batch(new[:, None], positions, CausalMask(length + n), cross_mask=cross)
    return _cut(torch.stack(ids, 1).cpu().numpy(), torch.stack(log_probs, 1), stops, stopped)


def forbidden_tokens(prompted: PromptedModel, starts: Sequence[Start], stops: Array) -> Tensor:
    """Return the special tokens except stops and expected sentinels, (starts, vocab) bool."""
    forbidden = np.tile(prompted.vocab.is_special, (len(starts), 1))
    forbidden[:, stops] = False
    for row, start in zip(forbidden, starts, strict=True):
        if _may_have_sentinels(prompted, start):
            row[prompted.vocab.sentinels] = False
    return torch.from_numpy(forbidden).to(prompted.device)


def _may_have_sentinels(prompted: PromptedModel, start: Start) -> bool:
    """Return whether the text may have sentinels, even ones that its source does not have."""
    if start.source is None or len(start.target) or not prompted.uses_sentinels:
        return False
    text = start.source[1:]  # a mode token may be a sentinel too
    return not prompted.reads_plain or bool(np.isin(text, prompted.vocab.sentinels).any())


def _cut(ids: Array, log_probs: Tensor, stops: Array, stopped: Stopped) -> list[GeneratedTokens]:
    """Cut each row at its first stop token."""
    cut = []
    nats = log_probs.cpu().double().numpy()
    for row, row_nats in zip(ids, nats, strict=True):
        is_stop = np.isin(row, stops)
        n = int(is_stop.argmax()) if is_stop.any() else len(row)
        cut.append(GeneratedTokens(row[:n], row_nats[: n + 1], "end" if is_stop.any() else stopped))
    return cut


def next_token_batch(prompted: PromptedModel, starts: Sequence[Start]) -> Batch:
    """Return the batch whose last position predicts the token after each start.

    The layout arranges the target with one more token, the only one that is scored; the batch is
    cut after the position that predicts it.

    Args:
        prompted: the model.
        starts: starts of one length.

    Raises:
        UserError: a start is empty, or longer than the model can read.
    """
    target = np.stack([np.append(start.target, 0) for start in starts])
    weights = np.zeros(target.shape, dtype=np.float32)
    weights[:, -1] = 1.0
    sources = [start.source for start in starts if start.source is not None]
    source = _tokens(np.stack(sources)) if sources else None
    example = Example(source, _tokens(target), weights)
    batch = prompted.recipe.layout.arrange(example, prompted.vocab)
    where = np.flatnonzero(batch.weights[0])
    if not len(where):
        raise UserError("the prompt is empty, and this model requires a token to predict from")
    end = int(where[0]) + 1
    prompted.check_length(max(end, 0 if batch.source is None else batch.source.ids.shape[1]))
    return replace(
        batch,
        ids=batch.ids[:, :end],
        positions=batch.positions[:, :end],
        targets=None,
        weights=None,
    )


def _tokens(ids: Array) -> Tokens:
    """Return rows of one document each, without padding."""
    positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape).copy()
    return Tokens(ids, np.zeros_like(ids), positions)
