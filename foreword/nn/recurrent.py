"""Recurrent language models: a state updated word by word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from foreword.nn.document_spans import DocumentSpans
from foreword.nn.dropout import Dropout
from foreword.nn.model import Backbone, ModelSettings, NeuralBackbone
from foreword.nn.positions.none import None_
from foreword.nn.precision import upcast
from foreword.nn.unrolled import layers_of, run_layers, unroll
from foreword.types import Batch, Hidden

State = tuple[Tensor, ...]  # of all layers: h, and c of an LSTM; (batch, layers, d_model) each


@dataclass(frozen=True)
class RecurrentSettings(ModelSettings):
    """The settings of recurrent models.

    Attributes:
        stateful: begin each row with the final state of the row before in its stream (truncated
            backpropagation through time). It requires packing `stream`. Else each document begins
            from zeros.

    `dropout` is between layers, before the first and after the last, never from step to step
    (Zaremba et al. 2014, section 3.2).
    """

    reads_ahead: ClassVar[bool] = False
    core: ClassVar[Callable[..., nn.RNNBase]]

    stateful: bool = True

    @property
    def has_memory(self) -> bool:
        """Whether the state is kept from row to row."""
        return self.stateful

    def build(self, vocab: int) -> Backbone:
        """Return the backbone for a vocabulary of `vocab` ids."""
        return RecurrentBackbone(self, vocab)


class RecurrentBackbone(NeuralBackbone):
    """Embedding, then recurrent layers."""

    first_contextual_layer: ClassVar[int] = 1

    def __init__(self, settings: RecurrentSettings, vocab: int) -> None:
        super().__init__()
        self.settings = settings
        self.embedding = settings.build_embedding(vocab, projects=False)
        self.position = None_().build(0, 1, 0, layers=0, is_causal=True)
        self.core = settings.core(
            settings.embedding_width,
            settings.d_model,
            settings.layers,
            bias=settings.bias,
            batch_first=True,
            dropout=settings.dropout if settings.layers > 1 else 0.0,
        )
        self.dropout = Dropout(settings.dropout)

    def forward(self, batch: Batch, cache: Any = None) -> Hidden:
        """Return states (batch, length, d_model); cache and memory are recurrent states.

        The state is reset at the beginning of each document, where positions restart at 0.
        """
        x = self.embedding(batch, self.position)
        low = x.dtype
        # In float32: products within a recurrence are small, and errors accumulate over steps.
        with torch.autocast(x.device.type, enabled=False):
            before = cache if cache is not None else batch.memory
            states, after = recur(self.core, upcast(x), batch.positions, before)
        memory = None
        if self.settings.has_memory:
            memory = tuple(part.detach() for part in after)
        return Hidden(self.dropout(states.to(low)), after, memory)

    def by_layer(self, batch: Batch, cache: Any = None) -> Hidden:
        """Like `forward`, layer by layer, with the states of each."""
        x = self.embedding(batch, self.position)
        low, layers = x.dtype, [x]
        before = cache if cache is not None else batch.memory
        ends: list[State] = []
        with torch.autocast(x.device.type, enabled=False):
            for n, core in enumerate(layers_of(self.core)):
                begin = None if before is None else tuple(part[:, n : n + 1] for part in before)
                states, after = recur(core, upcast(x), batch.positions, begin)
                layers.append(states.to(low))
                x = self.dropout(layers[-1])
                ends.append(after)
        after = tuple(torch.cat(components, 1) for components in zip(*ends, strict=True))
        memory = tuple(part.detach() for part in after) if self.settings.has_memory else None
        return Hidden(x, after, memory, tuple(layers))

    def layer_modules(self) -> list[nn.Module]:
        """Return each layer as a view of `core`."""
        return list(layers_of(self.core))

    def with_layer_gradients(self, batch: Batch) -> Hidden:
        """Like `forward`, step by step; `layers` are zeros that were added to the states."""
        x = self.embedding(batch, self.position)
        is_new = batch.positions == 0
        states, zeros = unroll(layers_of(self.core), x, is_new, batch.memory)
        return Hidden(self.dropout(states), layers=zeros)


def recur(
    core: nn.RNNBase, x: Tensor, positions: Tensor, before: State | None
) -> tuple[Tensor, State]:
    """Run all layers of `core`, documents separately: the state is reset at position 0.

    Args:
        core: a torch module with `batch_first`.
        x: (batch, length, width).
        positions: position in the document, (batch, length) int64.
        before: initial state of each row's first document; zeros if None.

    Returns:
        The states of the last layer, (batch, length, its width), and the final state of all layers.
    """
    is_new = positions == 0
    is_new[:, 0] = False
    if torch.compiler.is_exporting() or not is_new.any():  # a graph reads one text in each row
        initial = None if before is None else _to_torch(before)
        states, after = run_layers(core, x, initial)
        return states, _from_torch(after)
    # Each document becomes a separate sequence.
    spans = DocumentSpans.of(is_new.cumsum(1))
    padded = pack_padded_sequence(
        spans.cut(x), spans.lengths.cpu(), batch_first=True, enforce_sorted=False
    )
    initial = None
    if before is not None:  # only for a row's first document
        is_first = spans.starts == 0
        initial = _to_torch(
            tuple(part[spans.rows] * is_first[:, None, None].to(part.dtype) for part in before)
        )
    output, after = run_layers(core, padded, initial)
    states = spans.join(pad_packed_sequence(output, batch_first=True)[0], (len(x), x.shape[1]))
    # The final state of a row is that of its last document.
    is_last = spans.starts + spans.lengths == x.shape[1]
    order = spans.rows[is_last].argsort()
    return states, tuple(part[is_last][order] for part in _from_torch(after))


def _to_torch(state: State) -> Any:
    """Return a state in torch's layout: layers first; a tensor if it has one component."""
    components = tuple(part.transpose(0, 1).contiguous() for part in state)
    return components if len(components) > 1 else components[0]


def _from_torch(state: Any) -> State:
    components: Sequence[Tensor] = state if isinstance(state, tuple) else (state,)
    return tuple(part.transpose(0, 1) for part in components)
