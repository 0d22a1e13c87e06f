"""The bases of tasks with a head of our own: dropout and a linear map, perhaps after a layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

from torch import nn

from foreword.errors import UserError
from foreword.nn.dropout import Dropout
from foreword.settings.ranges import NonNegative, ShareBelowOne
from foreword.tables.examples import Labelled, batched
from foreword.text.tokenizer import Tokenizer
from foreword.tuning.encoded import in_columns
from foreword.tuning.input_template import REDUCED, InputTemplate, Pooling, TemplatedText
from foreword.tuning.tasks._contract import (
    EncodedExample,
    Labels,
    Needs,
    OutputForm,
    Reduction,
    Task,
)
from foreword.tuning.windows import Windows

HiddenLayer = Literal["none", "tanh", "gelu", "gelu_tanh", "gelu_norm"]
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "gelu_tanh": partial(nn.GELU, approximate="tanh"),
    "gelu_norm": nn.GELU,
}


@dataclass(frozen=True)
class HeadedTask(Task):
    """A task whose head reads states of the text: dropout, then a linear layer.

    Attributes:
        output_form: see `Needs.outputs`.
        dropout: share of each state dropped in training.
        auxiliary: weight of a decoder's language-model loss on the same texts, a mean over each
            text's tokens, beside the task's; 0 for none. GPT-1 has 0.5, which helps on large data
            sets only and not on average (Radford et al. 2018, table 5).
        mix_layers: read a scalar mix of all layers, with learned weights (ELMo), instead of the
            last layer. With strategy `frozen` the layers are features.
        hidden_layer: a layer as wide as the state before the outputs, as published models have:
            `tanh` (BERT, RoBERTa, ALBERT), `gelu` (ELECTRA), `gelu_tanh` (BigBird), or `gelu_norm`
            without biases (ModernBERT); `none`. It starts from the pooler that pretraining on
            pairs trained, if the model has one. By default `foreword tune` takes that of the
            family's class in transformers, so that `foreword export` can write it; in comparisons
            there is none.
        output_bias: whether the outputs have a bias; by default they do, except where the family's
            class in transformers has none (Llama).
    """

    output_form: ClassVar[OutputForm | None] = None

    dropout: ShareBelowOne = 0.1
    auxiliary: NonNegative = 0.0
    mix_layers: bool = False
    hidden_layer: HiddenLayer | None = None
    output_bias: bool | None = None

    @property
    def needs(self) -> Needs:
        """Needs of the model, by the settings."""
        return Needs(mix_layers=self.mix_layers, auxiliary=self.auxiliary, outputs=self.output_form)

    def head(self, d_model: int, labels: Labels) -> nn.Module:
        return self.linear_head(d_model, len(labels))

    def linear_head(self, d_model: int, outputs: int) -> nn.Module:
        """Return the layers of the settings, (states, d_model) -> (states, outputs)."""
        output = [
            Dropout(self.dropout),
            nn.Linear(d_model, outputs, bias=self.output_bias is not False),
        ]
        if self.hidden_layer in (None, "none"):
            return nn.Sequential(*output)
        has_norm = self.hidden_layer == "gelu_norm"
        dense = nn.Linear(d_model, d_model, bias=not has_norm)
        norm = [nn.LayerNorm(d_model, bias=False)] if has_norm else []
        return nn.Sequential(dense, ACTIVATIONS[self.hidden_layer](), *norm, *output)


def hidden_layer_of(head: nn.Module) -> tuple[nn.Linear, nn.LayerNorm | None] | None:
    """Return the hidden layer of a `PooledTask.linear_head` and its norm, if it has them."""
    linears = [module for module in head.modules() if isinstance(module, nn.Linear)]
    norms = [module for module in head.modules() if isinstance(module, nn.LayerNorm)]
    return (linears[0], norms[0] if norms else None) if len(linears) > 1 else None


def below_output(head: nn.Module) -> list[nn.Module]:
    """Return the hidden layer of a head, its activation and its norm; empty without one."""
    leaves = [module for module in head.modules() if not list(module.children())]
    linears = [n for n, module in enumerate(leaves) if isinstance(module, nn.Linear)]
    below = leaves[: linears[-1]] if linears else []
    return [module for module in below if not isinstance(module, Dropout)]


@dataclass(frozen=True)
class PooledTask(HeadedTask):
    """A task whose head reads one pooled state of each text or pair: dropout, then a linear layer.

    Attributes:
        pooling: the `first` token's state ([CLS]), the `mean` of all, their greatest value in
            each dimension (`max`), or the `last` one's; the family's by default, see
            `hidden_layer`. With another one there is no such layer. Small encoders learn more by
            the `mean`, pairs above all, where pretraining did not train [CLS]; ModernBERT's class
            alone can be exported with it, none with `max`.
        windows: how a text that is longer than the model's input is read: whole, in windows that
            overlap, whose pooled states are reduced to their `mean`, to their greatest value in
            each dimension (`max`), or to a mean with weights that are learned with the task
            (`attention`); or `cut`, its beginning alone. Of a pair the longer text has windows, of
            a question with options its context. A step of training reads 8 windows of a text,
            evenly spaced and others in each epoch; prediction reads all.
    """

    BEFORE: ClassVar[Mapping[str, Any]] = {"windows": "cut"}

    pooling: Pooling | None = None
    windows: Windows = "mean"

    @property
    def needs(self) -> Needs:
        """Needs of the model: what reduces several states, and those of windows."""
        reduction: Reduction = "max" if self.pooling == "max" else "mean"
        return replace(super().needs, reduction=reduction, windows=self.windows)

    @in_columns
    def encode(
        self, examples: Sequence[Labelled], tokenizer: Tokenizer, template: InputTemplate
    ) -> Iterator[EncodedExample]:
        """Yield each text or pair in the template, in windows if it is long, one output each."""
        are_pairs = any(example.pair is not None for example in examples)
        for chunk in batched(examples):
            firsts = tokenizer.encode_batch([example.text for example in chunk])
            seconds: Sequence[list[int] | None] = [None] * len(chunk)
            if are_pairs:
                if bare := [example for example in chunk if example.pair is None]:
                    raise UserError(
                        f"{bare[0].source}: has no second text, but other examples have one"
                    )
                seconds = tokenizer.encode_batch([example.pair or "" for example in chunk])
            for first, second in zip(firsts, seconds, strict=True):
                windows = template.windows(first, second, is_cut=self.windows == "cut")
                yield from pooled_inputs(windows, template, self.pooling)


def pooled_inputs(
    windows: Iterable[TemplatedText],
    template: InputTemplate,
    pooling: Pooling | None,
    *,
    is_further: bool = False,
) -> Iterator[EncodedExample]:
    """Yield the windows of a text, which `is_further` of an example's, as inputs."""
    is_reduced = (pooling or template.pooling) in REDUCED
    for number, window in enumerate(windows):
        yield EncodedExample(
            window.ids,
            window.segments,
            template.pooled_positions(window, pooling),
            window.was_cut,
            is_reduced,
            is_further=is_further or number > 0,
            is_continued=number > 0,
        )
