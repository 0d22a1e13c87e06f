"""How much context a model uses: held-out loss by the length of its memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np

from foreword.data.packing.stream import Stream
from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.evaluate import entropy
from foreword.evaluate.heldout import ALL, unknown_in
from foreword.evaluate.prompting import PromptedModel
from foreword.nn.masks import CausalMask
from foreword.nn.stack import Stack
from foreword.train.step import evaluate
from foreword.types import Array, Batch

STREAMS = 16  # at most, read side by side as rows of a batch
STEPS = 8  # a stream has at least this many times the length of a row and its memory


@dataclass(frozen=True)
class MemoryLoss:
    """A loss on held-out text with a memory of one length.

    Attributes:
        memory: tokens before the row that each prediction of it may use, in each layer.
        loss: nats per token.
        predictions: how many; the same for every memory.
        bits_per_byte: the same loss.
        unknown: share of the text's tokens that are [UNK].
    """

    memory: int
    loss: float
    predictions: int
    bits_per_byte: float
    unknown: float = 0.0

    def as_row(self) -> dict[str, float | int | str | None]:
        """Flat, for tables and JSON."""
        return {
            "memory": self.memory,
            "loss": self.loss,
            "perplexity": math.exp(min(self.loss, 700.0)),
            "bits_per_byte": self.bits_per_byte,
            "predictions": self.predictions,
        }


def by_memory(
    prompted: PromptedModel,
    shards: Shards,
    memories: Sequence[int],
    bytes_per_token: float,
    rows: int = ALL,
) -> list[MemoryLoss]:
    """Return the loss on one running text for each length of memory, on the same tokens.

    - A model with a memory remembers as many states as is said, in training's rows: longer
      memories than in training too.
    - One without reads that many tokens before again, and so has less room for new ones in its
      row.

    Each prediction so sees at least `memory` tokens and at most a row more.

    Args:
        prompted: a causal model.
        shards: held-out text.
        memories: in tokens.
        bytes_per_token: of the text.
        rows: the most rows of the text to read.

    Raises:
        UserError: it is no causal model, keeps documents apart, or has no room for such a memory.
    """
    recipe, model = prompted.recipe, prompted.model
    if not prompted.continues or recipe.packing.document_mask:
        raise UserError(
            f"{prompted.name}: a memory is measured of causal models that read one text after "
            "another; this one does not"
        )
    if recipe.model.has_memory and not _stacks(prompted):
        raise UserError(
            f"{prompted.name}: --memory: what this model hands on is a state and has no length"
        )
    length = recipe.packing.length
    for memory in memories:
        if memory < 0 or (memory >= length and not recipe.model.has_memory):
            room = "must not be negative" if memory < 0 else f"can have at most {length - 1}"
            raise UserError(f"--memory {memory}: {room}; a row has {length} tokens")
    text = _as_streams(prompted, shards, length + max(memories), rows)

    loss_fn = partial(recipe.objective.loss, model)
    found, unknown = [], unknown_in(shards, prompted.vocab)
    for memory in memories:
        if recipe.model.has_memory:
            batches = _windows(text, length, 0)
        else:
            batches = _windows(text, length - memory, memory)
        with _memory_set_to(prompted, memory):
            measured = evaluate(model, batches, loss_fn, prompted.dtype)
        bits = entropy.bits_per_byte(measured.loss, bytes_per_token)
        found.append(MemoryLoss(memory, measured.loss, int(measured.weight), bits, unknown))
    return found


def _as_streams(prompted: PromptedModel, shards: Shards, seen: int, rows: int) -> Array:
    """Return the text as streams far longer than what is `seen` at once, (streams, tokens)."""
    length = prompted.recipe.packing.length
    if shards.tokens_total < seen:
        raise UserError(
            f"{shards.tokens_total} tokens of held-out text are too few for a memory of "
            f"{seen - length} and rows of {length}; name a longer text with --file"
        )
    streams = max(1, min(STREAMS, rows, shards.tokens_total // (STEPS * seen)))
    packed = Stream(length, prompted.recipe.packing.eos).open(shards, prompted.vocab, 0, streams)
    steps = min(packed.tokens_per_epoch // streams // length, max(1, rows // streams))
    ids = packed.rows(np.arange(steps * streams)).ids.reshape(steps, streams, length)
    return np.asarray(ids.transpose(1, 0, 2).reshape(streams, steps * length))


def _windows(text: Array, new: int, again: int) -> Iterator[Batch]:
    """Yield steps of `new` tokens, each after up to `again` tokens that are not predicted."""
    last = text.shape[1] - 1
    for start in range(0, last, new):
        before, stop = min(again, start), min(start + new, last)
        ids = text[:, start - before : stop]
        weights = np.ones(ids.shape, dtype=np.float32)
        weights[:, :before] = 0.0
        positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape).copy()
        targets = text[:, start - before + 1 : stop + 1]
        yield Batch(ids.copy(), positions, CausalMask(), targets.copy(), weights)


@contextmanager
def _memory_set_to(prompted: PromptedModel, memory: int) -> Iterator[None]:
    """Set the length of the model's memory within the context."""
    stacks = _stacks(prompted)
    lengths = [stack.memory_length for stack in stacks]
    for stack in stacks:
        stack.memory_length = memory
    try:
        yield
    finally:
        for stack, length in zip(stacks, lengths, strict=True):
            stack.memory_length = length


def _stacks(prompted: PromptedModel) -> list[Stack]:
    """Return the stacks that have a memory."""
    return [m for m in prompted.model.modules() if isinstance(m, Stack) and m.memory_length]
