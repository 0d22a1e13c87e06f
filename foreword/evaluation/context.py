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
from foreword.evaluation.heldout import ALL, unknown_in
from foreword.nn.masks import CausalMask
from foreword.nn.model import MemoryBackbone
from foreword.runs.measure import bits_per_byte
from foreword.runs.trained_model import TrainedModel
from foreword.train.step import evaluate
from foreword.types import Array, Batch

STREAMS = 16  # the most streams in a batch
STEPS = 8  # a stream is at least this many times as long as a row and its memory


@dataclass(frozen=True)
class MemoryLoss:
    """A loss on held-out text with a memory of one length.

    Attributes:
        memory: tokens before the row that each layer may attend to.
        loss: nats per token.
        predictions: the number of predictions, equal for every memory.
        bits_per_byte: the loss in bits per byte of text.
        unknown: share of the text's tokens that are [UNK].
    """

    memory: int
    loss: float
    predictions: int
    bits_per_byte: float
    unknown: float = 0.0

    def as_row(self) -> dict[str, float | int | str | None]:
        """Return a row of a table or of JSON."""
        return {
            "memory": self.memory,
            "loss": self.loss,
            "perplexity": math.exp(min(self.loss, 700.0)),
            "bits_per_byte": self.bits_per_byte,
            "predictions": self.predictions,
        }


def by_memory(
    prompted: TrainedModel,
    shards: Shards,
    memories: Sequence[int],
    bytes_per_token: float,
    rows: int = ALL,
) -> list[MemoryLoss]:
    """Return the loss on one running text for each length of memory, on the same tokens.

    - A model with a memory reads rows of training's length and keeps `memory` states, which may be
      more than in training.
    - A model without one rereads the last `memory` tokens in each row, followed by fewer new ones.

    So each prediction sees at least `memory` tokens and at most a row more.

    Args:
        prompted: a causal model.
        shards: held-out text.
        memories: the lengths, in tokens.
        bytes_per_token: bytes of text per token.
        rows: the most rows of the text to read.

    Raises:
        UserError: the model is not causal, masks documents, or cannot have such a memory.
    """
    recipe, model = prompted.recipe, prompted.model
    if not prompted.continues or recipe.packing.document_mask:
        raise UserError(
            f"{prompted.name}: --context-lengths requires a causal model without document masking; "
            "this one is not"
        )
    if recipe.model.has_memory and not recipe.model.memory:
        raise UserError(
            f"{prompted.name}: --context-lengths: this model's memory is a recurrent state without "
            "a length"
        )
    length = recipe.packing.length
    for memory in memories:
        if memory >= length and not recipe.model.has_memory:
            raise UserError(
                f"--context-lengths {memory}: can have at most {length - 1}; a row has {length} "
                "tokens"
            )
    # Measure the loss with each memory, on the same streams.
    text = _as_streams(prompted, shards, length + max(memories), rows)

    loss_fn = partial(recipe.objective.loss, model)
    losses, unknown = [], unknown_in(shards, prompted.vocab)
    for memory in memories:
        if recipe.model.has_memory:
            batches = _windows(text, length, 0)
        else:
            batches = _windows(text, length - memory, memory)
        with _memory_length(prompted, memory):
            measured = evaluate(model, batches, loss_fn, prompted.dtype)
        bits = bits_per_byte(measured.loss, bytes_per_token)
        losses.append(MemoryLoss(memory, measured.loss, int(measured.count), bits, unknown))
    return losses


def _as_streams(prompted: TrainedModel, shards: Shards, visible: int, rows: int) -> Array:
    """Return the text as streams far longer than the `visible` tokens, (streams, tokens)."""
    length = prompted.recipe.packing.length
    if shards.tokens_total < visible:
        raise UserError(
            f"{shards.tokens_total} tokens of held-out text are too few for a memory of "
            f"{visible - length} and rows of {length}; name a longer text with --data"
        )
    streams = max(1, min(STREAMS, rows, shards.tokens_total // (STEPS * visible)))
    packed = Stream(length, prompted.recipe.packing.eos).open(shards, prompted.vocab, 0, streams)
    steps = min(packed.tokens_per_epoch // streams // length, max(1, rows // streams))
    ids = packed.rows(np.arange(steps * streams)).ids.reshape(steps, streams, length)
    return np.asarray(ids.transpose(1, 0, 2).reshape(streams, steps * length))


def _windows(text: Array, new: int, repeated: int) -> Iterator[Batch]:
    """Yield batches of `new` tokens, each after up to `repeated` tokens that are not predicted."""
    last = text.shape[1] - 1
    for start in range(0, last, new):
        context, stop = min(repeated, start), min(start + new, last)
        ids = text[:, start - context : stop]
        weights = np.ones(ids.shape, dtype=np.float32)
        weights[:, :context] = 0.0
        positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape).copy()
        targets = text[:, start - context + 1 : stop + 1]
        yield Batch(ids.copy(), positions, CausalMask(), targets.copy(), weights)


@contextmanager
def _memory_length(prompted: TrainedModel, memory: int) -> Iterator[None]:
    """Set the length of the model's memory, if it has one, within the context."""
    trained, backbone = prompted.recipe.model.memory, prompted.model.backbone
    if not trained:
        yield
        return
    assert isinstance(backbone, MemoryBackbone)
    backbone.set_memory_length(memory)
    try:
        yield
    finally:
        backbone.set_memory_length(trained)
