"""How much of what came before a model really uses: held-out loss by the length of its memory."""

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

LANES = 16  # at most, read side by side
STEPS = 8  # a lane is at least so many times as long as a row and its memory


@dataclass(frozen=True)
class ByMemory:
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
) -> list[ByMemory]:
    """The loss on one running text for each length of memory; each time of the same tokens.

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
        rows: at most so many of the text are read.

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
    text = _lanes(prompted, shards, length + max(memories), rows)

    loss_fn = partial(recipe.objective.loss, model)
    found, unknown = [], unknown_in(shards, prompted.vocab)
    for memory in memories:
        if recipe.model.has_memory:
            batches = _windows(text, length, 0)
        else:
            batches = _windows(text, length - memory, memory)
        with _remembering(prompted, memory):
            measured = evaluate(model, batches, loss_fn, prompted.dtype)
        bits = entropy.bits_per_byte(measured.loss, bytes_per_token)
        found.append(ByMemory(memory, measured.loss, int(measured.weight), bits, unknown))
    return found


def _lanes(prompted: PromptedModel, shards: Shards, seen: int, rows: int) -> Array:
    """The text in lanes that are long beside what is `seen` at once, (lanes, tokens) int64."""
    length = prompted.recipe.packing.length
    if shards.tokens_total < seen:
        raise UserError(
            f"{shards.tokens_total} tokens of held-out text are too few for a memory of "
            f"{seen - length} and rows of {length}; name a longer text with --file"
        )
    streams = max(1, min(LANES, rows, shards.tokens_total // (STEPS * seen)))
    packed = Stream(length, prompted.recipe.packing.eos).open(shards, prompted.vocab, 0, streams)
    steps = min(packed.tokens_per_epoch // streams // length, max(1, rows // streams))
    ids = packed.rows(np.arange(steps * streams)).ids.reshape(steps, streams, length)
    return np.asarray(ids.transpose(1, 0, 2).reshape(streams, steps * length))


def _windows(text: Array, new: int, again: int) -> Iterator[Batch]:
    """The text in steps of `new` tokens, each with up to `again` tokens before, not predicted."""
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
def _remembering(prompted: PromptedModel, memory: int) -> Iterator[None]:
    """Within it, a model with a memory has one of this length."""
    stacks = _stacks(prompted)
    kept = [stack.memory_length for stack in stacks]
    for stack in stacks:
        stack.memory_length = memory
    try:
        yield
    finally:
        for stack, places in zip(stacks, kept, strict=True):
            stack.memory_length = places


def _stacks(prompted: PromptedModel) -> list[Stack]:
    """The parts of the model that have a memory."""
    return [m for m in prompted.model.modules() if isinstance(m, Stack) and m.memory_length]
