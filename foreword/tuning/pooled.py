"""The base of tasks that read one pooled state of a text: the first, the last, or a mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from foreword.errors import UserError
from foreword.tables.examples import Labelled, batched
from foreword.text.tokenizer import Tokenizer
from foreword.tuning.encoded import EncodedTexts
from foreword.tuning.headed import HeadedTask
from foreword.tuning.input_template import REDUCED, InputTemplate, Pooling
from foreword.tuning.tasks._contract import EncodedExample, Reduction


@dataclass(frozen=True)
class PooledTask(HeadedTask):
    """A task whose head reads one pooled state of each text or pair: dropout, then a linear layer.

    Attributes:
        pooling: the `first` token's state ([CLS]), the `mean` of all, their greatest value in
            each dimension (`max`), or the `last` one's; the family's by default, see
            `hidden_layer`. With another one there is no such layer. Small encoders learn more by
            the `mean`, pairs above all, where pretraining did not train [CLS]; ModernBERT's class
            alone can be exported with it, none with `max`.
    """

    pooling: Pooling | None = None

    @property
    def reduction(self) -> Reduction:
        """What makes one state of several: their mean, or their maximum."""
        return "max" if self.pooling == "max" else "mean"

    def is_reduced(self, template: InputTemplate) -> bool:
        """Return whether an output reduces several states to one."""
        return (self.pooling or template.pooling) in REDUCED

    def encode(
        self, examples: Sequence[Labelled], tokenizer: Tokenizer, template: InputTemplate
    ) -> Sequence[EncodedExample]:
        """Return each text or pair in the template, one output each.

        Raises:
            UserError: some examples are pairs and some are not, or the model has no such state.
        """
        are_pairs = any(example.pair is not None for example in examples)
        is_pooled = self.is_reduced(template)

        def encoded() -> Iterator[EncodedExample]:
            for chunk in batched(examples):
                firsts = tokenizer.encode_batch([example.text for example in chunk])
                seconds: Sequence[list[int] | None] = [None] * len(chunk)
                if are_pairs:
                    seconds = tokenizer.encode_batch(list(map(_second, chunk)))
                for first, second in zip(firsts, seconds, strict=True):
                    inputs = template.apply(first, second)
                    positions = template.pooled_positions(inputs, self.pooling)
                    yield EncodedExample(
                        inputs.ids, inputs.segments, positions, inputs.was_cut, is_pooled
                    )

        return EncodedTexts.of(encoded())


def _second(example: Labelled) -> str:
    """Return the second text of a pair."""
    if example.pair is None:
        raise UserError(f"{example.source}: has no second text, but other examples have one")
    return example.pair
