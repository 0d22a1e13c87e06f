"""The attention weights of a text: how much each token attends to each, by layer and head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor

from foreword.errors import UserError
from foreword.evaluation.scorer import padded
from foreword.nn.attention import Attention, dense_only
from foreword.nn.attentions._contract import AttentionMechanism, RecurrenceKind
from foreword.nn.block import Block
from foreword.nn.stack import Stack
from foreword.runs.trained_model import TrainedModel
from foreword.settings import kinds
from foreword.types import Array


@dataclass(frozen=True)
class AttentionWeights:
    """The attention weights of a text.

    Attributes:
        tokens: the text's tokens and the special ones around it, as written.
        is_special: which of them are special, (length,) bool.
        layers: the weights of each head, by layer: a row for each token that attends, which
            sums to 1; (heads, length, length) float32. Those of a learned prefix are left out.
    """

    tokens: tuple[str, ...]
    is_special: Array
    layers: tuple[Array, ...]


def attention_weights(prompted: TrainedModel, text: str) -> AttentionWeights:
    """Return the weights of a model's self-attention, of its encoder if it has one.

    Raises:
        UserError: the model has no such weights, or the text is empty or too long.
    """
    attentions = self_attentions(prompted)
    ids = prompted.with_special_tokens(prompted.tokenizer.encode(text))
    recorded: list[Tensor] = []

    def record(module: Attention, inputs: Any, output: Tensor) -> None:
        recorded.append(module.weights(*inputs)[0].float().cpu())

    hooks = [module.register_forward_hook(record) for module in attentions]
    try:
        with dense_only():  # FlexAttention does not take values as wide as the text is long
            prompted.encode(padded([ids]))
    finally:
        for hook in hooks:
            hook.remove()
    # A decoder with a source has the text once more behind it, as the target.
    length = len(ids)
    layers = tuple(weights[:, :length, :length].numpy() for weights in recorded)
    tokens = tuple(_written(prompted, ids, n) for n in range(length))
    return AttentionWeights(tokens, prompted.vocab.is_special[ids], layers)


def self_attentions(prompted: TrainedModel) -> list[Attention]:
    """Return the modules of self-attention, of the encoder if there is one; layers may share one.

    Raises:
        UserError: the model has none whose weights belong to single tokens.
    """
    stacks = [module for module in prompted.model.backbone.modules() if isinstance(module, Stack)]
    if not stacks:
        raise prompted.unable(
            "has no self-attention, so there are no weights to show", "Transformers"
        )
    for stack in stacks:
        for kind, mechanism in zip(stack.attention_kinds, stack.attention_mechanisms, strict=True):
            if isinstance(kind, RecurrenceKind):
                raise UserError(
                    f"{prompted.name}: '{kinds.name_of(kind)}' has no weights of single tokens; "
                    "models that can: Transformers with attention in every layer"
                )
            if cast(AttentionMechanism, mechanism).mask(1, 1) is None:
                raise UserError(
                    f"{prompted.name}: attention '{kinds.name_of(kind)}' mixes all positions "
                    "before the softmax, so no weight is that of one token; models that can: "
                    "Transformers with another attention"
                )
    blocks = [cast(Block, block) for stack in stacks for block in stack.blocks]
    return list(dict.fromkeys(cast(Attention, block.attention) for block in blocks))


def _written(prompted: TrainedModel, ids: Array, n: int) -> str:
    """Return a token as written; a piece within a word as the tokenizer spells it."""
    text = prompted.tokenizer.decode(ids[n : n + 1], skip_special=False).strip()
    return text or prompted.tokenizer.token(int(ids[n]))
