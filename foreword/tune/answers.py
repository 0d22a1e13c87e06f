"""Examples whose answer is a text: source and target, arranged as pretraining's layout has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from foreword.data.rows import positions_within
from foreword.errors import UserError
from foreword.evaluate.prompting import PromptedModel
from foreword.layouts._contract import Layout
from foreword.nn.heads import TokenHead
from foreword.tune.examples import EncodedTexts, Ragged
from foreword.tune.input_template import InputTemplate
from foreword.tune.rows import TOKENS_AT_ONCE, WIDTH, PooledBatch, first_fit
from foreword.tune.tasks._contract import EncodedExample
from foreword.types import Array, Example, MaxLengths, Tokens, Vocab

STEP = 64  # on CUDA rows are a multiple of this wide, since kernels are compiled per shape


class Words(nn.Module):
    """Pretraining's output layer: in training all scores, in evaluation the likeliest token alone.

    The scores of a whole vocabulary at every place of every example would not fit in memory.
    """

    def __init__(self, token_head: TokenHead) -> None:
        super().__init__()
        self.token_head = token_head

    def forward(self, states: Tensor) -> Tensor:
        """(places, d_model) -> (places, vocab), or (places, 1) ids as float32 in evaluation."""
        logits: Tensor = self.token_head(states)
        return logits if self.training else logits.argmax(-1, keepdim=True).float()


@dataclass(frozen=True)
class Answers:
    """Encoded examples, each a source and the target that answers it.

    Attributes:
        encoded: the sources, framed as in pretraining.
        targets: the answers with their end, a sequence of (places,) int64.
        template: how long a source may be, where the model has places for its answer too.
        layout: of pretraining.
        vocab: of its tokenizer.
        auxiliary: 0, as in `Examples`: there is no loss beside the task's.
    """

    encoded: Sequence[EncodedExample]
    targets: Any
    template: InputTemplate
    layout: Layout
    vocab: Vocab
    auxiliary: float = 0.0

    @classmethod
    def of(
        cls, prompted: PromptedModel, encoded: Sequence[EncodedExample], template: InputTemplate
    ) -> Answers:
        """Sources and answers framed as the objective of pretraining framed its own.

        Raises:
            UserError: the model was not pretrained to answer a source, or an answer is too long.
        """
        if not prompted.answers:
            raise UserError(
                f"{prompted.name}: this {prompted.family} was not trained to answer a source; "
                "use --task classify"
            )
        around = len(prompted.source_of(np.zeros(0, np.int64)))

        def target_of(example: EncodedExample) -> Array:
            assert example.answer is not None
            return np.concatenate([example.answer, prompted.end]).astype(np.int64)

        def framed(example: EncodedExample) -> EncodedExample:
            size = len(target_of(example))
            room = _room(prompted, template.length, size) - around
            if room < 1:
                raise UserError(
                    f"an answer of {size} tokens leaves no room for its source in the "
                    f"{prompted.limit} places of {prompted.name}; use shorter labels"
                )
            ids = prompted.source_of(example.ids[:room])
            return replace(example, ids=ids, was_cut=len(example.ids) > room)

        sources = EncodedTexts.of(map(framed, encoded))
        targets = Ragged.of(map(target_of, encoded))
        template = replace(template, fresh=())
        return cls(sources, targets, template, prompted.recipe.layout, prompted.vocab)

    def __len__(self) -> int:
        return len(self.encoded)

    def batches(self, numbers: Array, device: str) -> Iterator[PooledBatch]:
        """The examples `numbers`, packed into rows, so many rows at once as memory bears."""
        lengths = [len(self.encoded[n].ids) + len(self.targets[n]) for n in numbers]
        width = max(*lengths, min(WIDTH, self.template.length))
        rows = [[int(numbers[k]) for k in row] for row in first_fit(lengths, width)]
        at_once = max(1, TOKENS_AT_ONCE.get(device, 1 << 14) // width)
        for start in range(0, len(rows), at_once):
            yield self._pack(rows[start : start + at_once], STEP if device == "cuda" else 1)

    def _pack(self, rows: list[list[int]], step: int) -> PooledBatch:
        source = _side([[self.encoded[n].ids for n in row] for row in rows], step)
        target = _side([[self.targets[n] for n in row] for row in rows], step)
        weights = (target.documents >= 0).astype(np.float32)
        batch = self.layout.arrange(Example(source, target, weights), self.vocab)
        # Documents stand in their order, and the places that are predicted in that of the target.
        where, columns = np.nonzero(np.asarray(batch.weights))
        numbers = np.concatenate([[n] * len(self.targets[n]) for row in rows for n in row])
        right = np.asarray(batch.targets)[where, columns]
        return PooledBatch(batch, where, columns, numbers.astype(np.int64), right)


def _room(prompted: PromptedModel, length: int, target: int) -> int:
    """The most tokens of a source, up to `length`, that a model can read with such a target."""
    layout, limit = prompted.recipe.layout, prompted.limit

    def fits(source: int) -> bool:
        return (
            limit is None or layout.max_length(MaxLengths(source, target, source + target)) <= limit
        )

    return next((source for source in range(length, 0, -1) if fits(source)), 0)


def _side(rows: list[list[Array]], step: int) -> Tokens:
    """Rows of several texts each, end to end, padded behind to a multiple of `step`."""
    width = max(sum(map(len, row)) for row in rows)
    shape = (len(rows), -(-width // step) * step)
    ids, documents = np.zeros(shape, np.int64), np.full(shape, -1, np.int64)
    for r, row in enumerate(rows):
        joined: Any = np.concatenate(row)
        ids[r, : len(joined)] = joined
        documents[r, : len(joined)] = np.repeat(np.arange(len(row)), [len(text) for text in row])
    return Tokens(ids, documents, positions_within(documents))
