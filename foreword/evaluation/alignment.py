"""Alignment of target words with source words: a model's attention weights, added up by word."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from foreword.errors import UserError
from foreword.evaluation.decoding import starts_of
from foreword.evaluation.scorer import padded
from foreword.nn.attention import Attention
from foreword.nn.block import Block
from foreword.nn.source_attentions._contract import SourceAttention
from foreword.runs.trained_model import TrainedModel
from foreword.types import Array, Example


@dataclass(frozen=True)
class Alignment:
    """A source and a target, and the weight of each source word for each target word.

    Attributes:
        source: the words of the source, with the end.
        target: the words of the target, with the end.
        weights: a row for each target word, which sums to 1; (target, source) float64.
        what: which attention the weights come from.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Array
    what: str


def align(prompted: TrainedModel, source: str, target: str, layer: int | None = None) -> Alignment:
    """Return the attention to `source` when the model predicts `target`.

    For a Transformer it is the cross-attention of one layer, the mean of its heads. The weights of
    a source word's tokens are added up; those of a target word's tokens are averaged.

    Args:
        prompted: a model with an encoder and a decoder.
        source: the text that the model reads.
        target: the model's own output, or another text.
        layer: a layer of the decoder, from 1; default the last.

    Raises:
        UserError: the model has no such attention, or no such layer.
        TooLongError: source or target is longer than the model can read.
    """
    number = layer_of(prompted, layer)
    # Run the model on source and target, and record the weights of every layer.
    source_ids = starts_of(prompted, [source])[0].source
    assert source_ids is not None
    target_ids = np.concatenate([prompted.tokenizer.encode(target), prompted.end_token])
    prompted.check_pair(len(source_ids), len(target_ids))
    weights_of_targets = np.ones((1, len(target_ids)), np.float32)
    example = Example(padded([source_ids]), padded([target_ids]), weights_of_targets)
    batch = prompted.recipe.layout.arrange(example, prompted.vocab)
    with _recorded_weights(prompted.model.backbone) as recorded:
        prompted.run_backbone(batch)
    module, parts = list(recorded.items())[number - 1]
    weights = torch.cat(parts).cpu().double().numpy()
    what = "attention"
    if isinstance(module, Attention):
        what = f"cross-attention of layer {number} of {len(recorded)}, mean of its heads"
    # Add up the weights by word.
    target_words, target_index = _words(prompted, target_ids)
    source_words, source_index = _words(prompted, source_ids)
    by_word = _sum_columns(_sum_columns(weights, source_index).T, target_index).T
    counts = np.bincount(target_index)[:, None]
    return Alignment(source_words, target_words, by_word / counts, what)


def layer_of(prompted: TrainedModel, layer: int | None = None) -> int:
    """Return the number of the layer that `align` uses, from 1; default the last.

    Raises:
        UserError: the model has no such attention, or no such layer.
    """
    able = "encoder-decoders with attention"
    if not prompted.recipe.model.reads_source:
        raise prompted.unable("has no attention to a separate source", able)
    count = len(_source_attentions(prompted.model.backbone))
    if not count:
        raise prompted.unable("has no attention, so there is no alignment", able)
    number = count if layer is None else layer
    if not 1 <= number <= count:
        raise UserError(f"--layer {number}: layers 1 to {count} attend to the source")
    return number


def _source_attentions(backbone: nn.Module) -> list[SourceAttention | Attention]:
    """Return the modules that attend to the source, the first layer's first."""
    attentions: list[SourceAttention | Attention] = []
    for module in backbone.modules():
        if isinstance(module, SourceAttention):
            attentions.append(module)
        elif isinstance(module, Block) and module.cross is not None:
            attentions.append(module.cross)
    return attentions


@contextmanager
def _recorded_weights(backbone: nn.Module) -> Iterator[dict[nn.Module, list[Tensor]]]:
    """Record the attention weights on the source, (target, source), by module, within the context.

    A module that is called once per token records one row at a time.
    """
    recorded: dict[nn.Module, list[Tensor]] = {}

    def record_source_attention(
        module: SourceAttention, inputs: Any, output: tuple[Tensor, Tensor]
    ) -> None:
        recorded.setdefault(module, []).append(output[1][0])

    def record_cross_attention(module: Attention, inputs: Any, output: Tensor) -> None:
        recorded.setdefault(module, []).append(module.weights(*inputs)[0].float().mean(0))

    hooks = [
        module.register_forward_hook(
            record_source_attention
            if isinstance(module, SourceAttention)
            else record_cross_attention
        )
        for module in _source_attentions(backbone)
    ]
    try:
        yield recorded
    finally:
        for hook in hooks:
            hook.remove()


def _words(prompted: TrainedModel, ids: Array) -> tuple[tuple[str, ...], Array]:
    """Return the words of a text, and the index of each token's word, (tokens,) int64."""
    vocab = prompted.vocab
    starts_word = vocab.starts_word[ids] | vocab.is_special[ids]
    starts_word[:1] = True
    starts_word[1:] |= vocab.is_special[ids[:-1]]
    index = np.cumsum(starts_word) - 1
    words = []
    for n in range(int(index[-1]) + 1):
        pieces = ids[index == n]
        is_special = vocab.is_special[pieces[0]]
        text = prompted.tokenizer.decode(pieces, skip_special=False).strip()
        words.append(prompted.tokenizer.token(int(pieces[0])) if is_special else text)
    return tuple(words), index


def _sum_columns(weights: Array, index: Array) -> Array:
    """Return the sums of the columns with each index, (rows, words)."""
    sums = np.zeros((len(weights), int(index[-1]) + 1))
    np.add.at(sums.T, index, weights.T)
    return sums
