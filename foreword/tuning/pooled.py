"""The base of tasks that read one pooled state of a text: the first, the last, or a mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from torch import nn

from foreword.errors import UserError
from foreword.nn.dropout import Dropout
from foreword.ranges import NonNegative, ShareBelowOne
from foreword.text.tokenizer import Tokenizer
from foreword.tuning.examples import EncodedTexts, batched
from foreword.tuning.input_template import InputTemplate, Pooling
from foreword.tuning.labelled import Labelled
from foreword.tuning.tasks._contract import EncodedExample, Task

HiddenLayer = Literal["none", "tanh", "gelu", "gelu_tanh", "gelu_norm"]
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "gelu_tanh": partial(nn.GELU, approximate="tanh"),
    "gelu_norm": nn.GELU,
}


@dataclass(frozen=True)
class PooledTask(Task):
    """A task whose head reads one pooled state of each text or pair: dropout, then a linear layer.

    Attributes:
        dropout: share of that state dropped in training.
        pooling: the `first` token's state ([CLS]), the `mean` of the text's, or the `last` one's;
            the family's by default, see `hidden_layer`.
        auxiliary: weight of a decoder's language-model loss on the same texts, a mean over each
            text's tokens, beside the task's; 0 for none. GPT-1 has 0.5, which helps on large data
            sets only and not on average (Radford et al. 2018, table 5).
        mix_layers: read a scalar mix of all layers, with learned weights (ELMo), instead of the
            last layer. With strategy `frozen` the layers are features.
        hidden_layer: a layer as wide as the state before the outputs, as published models have:
            `tanh` (BERT, RoBERTa, ALBERT), `gelu` (ELECTRA), `gelu_tanh` (BigBird), or `gelu_norm`
            without biases (ModernBERT); `none`. It starts from the pooler that pretraining on
            pairs trained, if the model has one. By default `foreword tune` takes layer and pooling
            of the family's class in transformers, so that `foreword export` can write it; with
            another pooling, and in comparisons, there is none. Small encoders classify about two
            points better by the `mean`, which is not exported.
    """

    dropout: ShareBelowOne = 0.1
    pooling: Pooling | None = None
    auxiliary: NonNegative = 0.0
    mix_layers: bool = False
    hidden_layer: HiddenLayer | None = None

    def encode(
        self, examples: Sequence[Labelled], tokenizer: Tokenizer, template: InputTemplate
    ) -> Sequence[EncodedExample]:
        """Return each text or pair in the template, one output each.

        Raises:
            UserError: some examples are pairs and some are not, or the model has no such state.
        """
        are_pairs = any(example.pair is not None for example in examples)
        is_pooled = (self.pooling or template.pooling) == "mean"

        def encoded() -> Iterator[EncodedExample]:
            for some in batched(examples):
                firsts = tokenizer.encode_batch([example.text for example in some])
                seconds: Sequence[list[int] | None] = [None] * len(some)
                if are_pairs:
                    seconds = tokenizer.encode_batch(list(map(_second, some)))
                for first, second in zip(firsts, seconds, strict=True):
                    text = template.apply(first, second)
                    at = template.pooled_positions(text, self.pooling)
                    yield EncodedExample(text.ids, text.segments, at, text.was_cut, is_pooled)

        return EncodedTexts.of(encoded())

    def linear_head(self, d_model: int, outputs: int) -> nn.Module:
        """Return the layers of the settings, (texts, d_model) -> (texts, outputs)."""
        output = [Dropout(self.dropout), nn.Linear(d_model, outputs)]
        if self.hidden_layer in (None, "none"):
            return nn.Sequential(*output)
        has_norm = self.hidden_layer == "gelu_norm"
        dense = nn.Linear(d_model, d_model, bias=not has_norm)
        norm = [nn.LayerNorm(d_model, bias=False)] if has_norm else []
        return nn.Sequential(dense, ACTIVATIONS[self.hidden_layer](), *norm, *output)


def _second(example: Labelled) -> str:
    """Return the second text of a pair."""
    if example.pair is None:
        raise UserError(f"{example.source}: has no second text, but other examples have one")
    return example.pair


def hidden_layer_of(head: nn.Module) -> tuple[nn.Linear, nn.LayerNorm | None] | None:
    """Return the hidden layer of a `PooledTask.linear_head` and its norm, if it has them."""
    linears = [module for module in head.modules() if isinstance(module, nn.Linear)]
    norms = [module for module in head.modules() if isinstance(module, nn.LayerNorm)]
    return (linears[0], norms[0] if norms else None) if len(linears) > 1 else None
