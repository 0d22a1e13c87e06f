"""Texts and pairs with one pooled state: the first token's, the last token's, or a mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

from torch import nn

from foreword.errors import UserError
from foreword.nn.dropout import Dropout
from foreword.text.tokenizer import Tokenizer
from foreword.tuning.examples import EncodedTexts, batched
from foreword.tuning.input_template import InputTemplate, Pooling
from foreword.tuning.tasks._contract import EncodedExample, Labelled

HiddenLayer = Literal["none", "tanh", "gelu", "gelu_tanh", "gelu_norm"]
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "gelu_tanh": partial(nn.GELU, approximate="tanh"),
    "gelu_norm": nn.GELU,
}


def encode_pooled(
    examples: Sequence[Labelled],
    tokenizer: Tokenizer,
    template: InputTemplate,
    pooling: Pooling | None,
) -> Sequence[EncodedExample]:
    """Return each text or pair in the template, pooled by `pooling`, or by the template if None.

    Raises:
        UserError: some examples are pairs and some are not, or the model has no such state.
    """
    are_pairs = any(example.pair is not None for example in examples)
    is_pooled = (pooling or template.pooling) == "mean"

    def encoded() -> Iterator[EncodedExample]:
        for some in batched(examples):
            firsts = tokenizer.encode_batch([example.text for example in some])
            seconds: Sequence[list[int] | None] = [None] * len(some)
            if are_pairs:
                seconds = tokenizer.encode_batch(list(map(_second, some)))
            for first, second in zip(firsts, seconds, strict=True):
                text = template.apply(first, second)
                positions = template.pooled_positions(text, pooling)
                yield EncodedExample(text.ids, text.segments, positions, text.was_cut, is_pooled)

    return EncodedTexts.of(encoded())


def _second(example: Labelled) -> str:
    """Return the second text of a pair."""
    if example.pair is None:
        raise UserError(f"{example.source}: has no second text, but other examples have one")
    return example.pair


def linear_head(
    d_model: int, outputs: int, dropout: float, hidden_layer: HiddenLayer = "none"
) -> nn.Module:
    """Return dropout and a linear layer, (positions, d_model) -> (positions, outputs).

    Args:
        d_model: width of the states.
        outputs: number of outputs.
        dropout: share dropped of what the linear layer reads.
        hidden_layer: a layer of the same width before them.
    """
    output = [Dropout(dropout), nn.Linear(d_model, outputs)]
    if hidden_layer == "none":
        return nn.Sequential(*output)
    has_norm = hidden_layer == "gelu_norm"
    dense = nn.Linear(d_model, d_model, bias=not has_norm)
    norm = [nn.LayerNorm(d_model, bias=False)] if has_norm else []
    return nn.Sequential(dense, ACTIVATIONS[hidden_layer](), *norm, *output)


def hidden_layer_of(head: nn.Module) -> tuple[nn.Linear, nn.LayerNorm | None] | None:
    """Return the hidden layer of a `linear_head` and its norm, if it has them."""
    linears = [module for module in head.modules() if isinstance(module, nn.Linear)]
    norms = [module for module in head.modules() if isinstance(module, nn.LayerNorm)]
    return (linears[0], norms[0] if norms else None) if len(linears) > 1 else None
