"""Where a model with a source looks while it writes: the weights of its attention, word by word."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from foreword.errors import UserError
from foreword.evaluate.decoding import starts_of
from foreword.evaluate.prompting import PromptedModel
from foreword.evaluate.scorer import side_by_side
from foreword.nn.attention import Attention
from foreword.nn.block import Block
from foreword.nn.source_attentions._contract import SourceAttention
from foreword.types import Array, Example


@dataclass(frozen=True)
class Alignment:
    """A source and a target, and how much of each source word went into each target word.

    Attributes:
        source: words, the end included.
        target: words, the end included.
        weights: a row for each target word, each sums to 1; (target, source) float64.
        what: whose weights they are.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Array
    what: str


def align(prompted: PromptedModel, source: str, target: str, layer: int | None = None) -> Alignment:
    """The attention to `source` while `target` is written.

    Of a Transformer it is that of one layer's cross-attention, the mean of its heads. The weights
    of a word's tokens are added up on the source's side; on the target's their mean is taken.

    Args:
        prompted: a model with an encoder and a decoder.
        source: that is read.
        target: that is written; what the model writes itself, or another text.
        layer: of the decoder, from 1 on; the last if unsaid.

    Raises:
        UserError: the model has no such attention, or no such layer.
    """
    number = layer_of(prompted, layer)
    read = starts_of(prompted, [source])[0].source
    assert read is not None
    written = np.concatenate([prompted.tokenizer.encode(target), prompted.end])
    example = Example(
        side_by_side([read]), side_by_side([written]), np.ones((1, len(written)), np.float32)
    )
    batch = prompted.recipe.layout.arrange(example, prompted.vocab)
    with _watched(prompted.model.backbone) as seen:
        prompted.read(batch)
    module, parts = list(seen.items())[number - 1]
    weights = torch.cat(parts).double().cpu().numpy()
    what = "attention"
    if isinstance(module, Attention):
        what = f"cross-attention of layer {number} of {len(seen)}, mean of its heads"
    rows, columns = (_words(prompted, ids) for ids in (written, read))
    by_word = _summed(_summed(weights, columns[1]).T, rows[1]).T
    counts = np.bincount(rows[1])[:, None]
    return Alignment(columns[0], rows[0], by_word / counts, what)


def layer_of(prompted: PromptedModel, layer: int | None = None) -> int:
    """The number of the layer whose attention `align` shows, from 1 on; the last if unsaid.

    Raises:
        UserError: the model has no such attention, or no such layer.
    """
    if not prompted.recipe.model.reads_source:
        raise UserError(
            f"{prompted.name}: this {prompted.family} has no attention to a source of its own; an "
            "alignment wants a model with an encoder and a decoder"
        )
    count = len(_lookers(prompted.model.backbone))
    if not count:
        raise UserError(f"{prompted.name}: this model has no attention; there is no alignment")
    number = count if layer is None else layer
    if not 1 <= number <= count:
        raise UserError(f"--layer {number}: layers 1 to {count} look at the source")
    return number


def _lookers(backbone: nn.Module) -> list[SourceAttention | Attention]:
    """What looks at the source, the first layer's first."""
    found: list[SourceAttention | Attention] = []
    for module in backbone.modules():
        if isinstance(module, SourceAttention):
            found.append(module)
        elif isinstance(module, Block) and module.cross is not None:
            found.append(module.cross)
    return found


@contextmanager
def _watched(backbone: nn.Module) -> Iterator[dict[nn.Module, list[Tensor]]]:
    """Within it, the weights of looks at the source are kept, (target, source), by module.

    A module that looks once for each word leaves a row at a time.
    """
    seen: dict[nn.Module, list[Tensor]] = {}

    def of_aligner(module: SourceAttention, given: Any, found: tuple[Tensor, Tensor]) -> None:
        seen.setdefault(module, []).append(found[1][0])

    def of_cross(module: Attention, given: Any, found: Tensor) -> None:
        x, (keys, _), _ = given
        q = module.query(x).unflatten(-1, (module.heads, module.d_head)).transpose(1, 2)
        scores = module.scale * (q @ keys.transpose(-2, -1)).float()
        seen.setdefault(module, []).append(torch.softmax(scores, -1)[0].mean(0))

    hooks = [
        looker.register_forward_hook(
            of_aligner if isinstance(looker, SourceAttention) else of_cross
        )
        for looker in _lookers(backbone)
    ]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _words(prompted: PromptedModel, ids: Array) -> tuple[tuple[str, ...], Array]:
    """The words of a text, and which of them each token is of, (tokens,) int64."""
    vocab = prompted.vocab
    begins = vocab.starts_word[ids] | vocab.is_special[ids]
    begins[:1] = True
    begins[1:] |= vocab.is_special[ids[:-1]]
    number = np.cumsum(begins) - 1
    words = []
    for n in range(int(number[-1]) + 1):
        inside = ids[number == n]
        special = vocab.is_special[inside[0]]
        text = prompted.tokenizer.decode(inside, skip_special=False).strip()
        words.append(prompted.tokenizer.token(int(inside[0])) if special else text)
    return tuple(words), number


def _summed(weights: Array, number: Array) -> Array:
    """The columns of each word added up, (rows, words)."""
    out = np.zeros((len(weights), int(number[-1]) + 1))
    np.add.at(out.T, number, weights.T)
    return out
