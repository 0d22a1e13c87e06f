"""Two LSTMs: one reads the source, the other writes the target and may look back at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from foreword.kinds import part
from foreword.nn.cache import select
from foreword.nn.document_spans import DocumentSpans
from foreword.nn.dropout import Dropout
from foreword.nn.embedding import Embedding
from foreword.nn.model import Backbone
from foreword.nn.positions.none import None_
from foreword.nn.precision import at_least_float32
from foreword.nn.settings import ModelSettings
from foreword.nn.source_attention import SourceAttentionKind
from foreword.nn.unrolled import layers_of, through
from foreword.types import Batch, Hidden

State = tuple[Tensor, Tensor]  # h and c of all layers, (spans, layers, d_model) each


@dataclass(frozen=True)
class Seq2Seq(ModelSettings):
    """LSTM encoder and decoder, with attention of one head or without.

    The decoder begins with the state that the encoder ends with, layer by layer. With attention, a
    state h and the mean c of the source's, weighted by how well they go with h, give what the next
    word is predicted from: tanh(W [c; h]).

    Attributes:
        attention: how target words find their source words.
        bidirectional: the encoder reads in both directions, each with half of d_model.
        input_feeding: what a word was predicted from enters the next step of the decoder too, so
            that it knows what was looked at already; then the steps are taken one by one.

    `dropout` is of embeddings, between layers and of what words are predicted from.

    Reference: Sutskever et al. 2014; Bahdanau et al. 2015; Luong et al. 2015 (sections 3, 3.3).
    Differs from the papers: an LSTM where Bahdanau et al. have gated units without a cell; and
    their decoder looks before its step where ours looks after it, as Luong's. One embedding for
    both sides. The source is not reversed, as in Sutskever et al., but may be read both ways.
    """

    reads_source: ClassVar[bool] = True

    attention: SourceAttentionKind = part("nn/source_attentions", "additive")
    bidirectional: bool = True
    input_feeding: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bidirectional and self.d_model % 2:
            raise ValueError(f"d_model: two directions want an even one, got {self.d_model}")
        if self.input_feeding and self.attention.build(1) is None:
            raise ValueError("input_feeding: wants an attention; without one h is fed anyway")

    @property
    def depth(self) -> int:
        """Layers of encoder and decoder."""
        return 2 * self.layers

    def build(self, vocab: int) -> Backbone:
        """The backbone for a vocabulary of `vocab` ids."""
        return Seq2seqBackbone(self, vocab)


@dataclass(frozen=True)
class DecoderCache:
    """The source as the decoder sees it, and how far it has come; one span a row.

    Attributes:
        source: the encoder's states, (spans, source length, d_model).
        prepared: what the attention makes of them.
        is_token: which of them are no padding, (spans, source length) bool.
        state: of the decoder.
        fed: what the last word was predicted from, (spans, d_model).
    """

    source: Tensor
    prepared: Tensor
    is_token: Tensor
    state: State
    fed: Tensor


class Seq2seqBackbone(Backbone):
    """Embedding, encoder, decoder, attention.

    Packed rows are taken apart: each document is read and written on its own, and no step is
    computed for padding.
    """

    def __init__(self, settings: Seq2Seq, vocab: int) -> None:
        super().__init__()
        self.settings = settings
        self.embedding = Embedding(settings, vocab, widens=False)
        self.position = None_().build(0, 1, 0, layers=0, is_causal=True)
        d_model, width = settings.d_model, settings.embedding_width
        self.directions = 1 + settings.bidirectional
        self.feeds = settings.input_feeding
        self.encoder = _lstm(settings, width, d_model // self.directions, both=self.directions == 2)
        self.decoder = _lstm(settings, width + d_model * self.feeds, d_model, both=False)
        self.source_attention = settings.attention.build(d_model)
        self.merge = (
            nn.Linear(2 * d_model, d_model, bias=settings.bias)
            if self.source_attention
            else nn.Identity()
        )
        self.dropout = Dropout(settings.dropout)

    def forward(self, batch: Batch, cache: Any = None) -> Hidden:
        """The decoder's states (batch, length, d_model).

        With `cache` of an earlier call the source is not read again. Rows of several documents
        leave none.
        """
        x = self.embedding(batch, self.position)
        if cache is not None:
            states, cache = self._decode(x, None, cache)
            return Hidden(self.dropout(states), cache)
        assert batch.source is not None
        return self._translate(batch, x, self.embedding(batch.source, self.position))

    def with_layer_gradients(self, batch: Batch) -> Hidden:
        """The same, for gradients; `layers` is what enters the encoder alone."""
        assert batch.source is not None
        source = self.embedding(batch.source, self.position)
        hidden = self._translate(batch, self.embedding(batch, self.position), source)
        return replace(hidden, layers=(source,))

    def _translate(self, batch: Batch, x: Tensor, source: Tensor) -> Hidden:
        """The decoder's states and memory from the embeddings of both sides."""
        assert batch.source is not None
        source_spans = _document_spans(batch.source)
        spans = _document_spans(batch)
        encoded, state = self._encode(source, source_spans)
        which, is_found = spans.match(source_spans)
        encoded = encoded[which]
        begin = DecoderCache(
            source=encoded,
            prepared=encoded
            if self.source_attention is None
            else self.source_attention.prepare(encoded),
            is_token=source_spans.is_token()[which] & is_found[:, None],
            state=_masked(state, which, is_found),
            fed=encoded.new_zeros(len(spans), self.settings.d_model),
        )
        states, after = self._decode(spans.cut(x), spans.lengths, begin)
        joined = spans.join(states, (x.shape[0], x.shape[1]))
        is_one_each = len(spans) == len(x) and bool((spans.starts == 0).all())
        return Hidden(self.dropout(joined), after if is_one_each else None)

    def encode(self, source: Batch) -> Tensor:
        """The encoder's states of a source, (batch, length, d_model)."""
        spans = _document_spans(source)
        states, _ = self._encode(self.embedding(source, self.position), spans)
        return spans.join(states, (source.ids.shape[0], source.ids.shape[1]))

    def _encode(self, source: Tensor, spans: DocumentSpans) -> tuple[Tensor, State]:
        """States (spans, longest, d_model), and the state that each layer ends with."""
        states, after = _run(self.encoder, spans.cut(source), spans.lengths, None)
        # Layers and directions, one after the other, become layers of both directions side by side.
        h, c = (part.reshape(len(spans), self.settings.layers, -1) for part in after)
        return states, (h, c)

    def _decode(
        self, x: Tensor, lengths: Tensor | None, cache: DecoderCache
    ) -> tuple[Tensor, DecoderCache]:
        """What words are predicted from, (spans, length, d_model); and the memory after it."""
        if self.feeds:
            return self._decode_step_by_step(x, lengths, cache)
        states, state = _run(self.decoder, x, lengths, cache.state)
        merged = self._look(states, cache)
        return merged, DecoderCache(cache.source, cache.prepared, cache.is_token, state, cache.fed)

    def _decode_step_by_step(
        self, x: Tensor, lengths: Tensor | None, cache: DecoderCache
    ) -> tuple[Tensor, DecoderCache]:
        """The same, each step with what the one before it was predicted from."""
        if lengths is None:
            lengths = torch.full((len(x),), x.shape[1], device=x.device)
        order = lengths.argsort(descending=True, stable=True)  # those still open come first
        x, lengths, cache = x[order], lengths[order], select(cache, order)
        state, fed = cache.state, cache.fed
        layers = layers_of(self.decoder)
        found = []
        for step in range(x.shape[1]):
            n = int((lengths > step).sum())
            first = slice(n)
            entering = torch.cat([x[:n, step], fed[:n]], -1)[:, None]
            before = (state[0][:n], state[1][:n])
            h, after = _run(self.decoder, entering, None, before, layers)
            merged = self._look(h, select(cache, first))[:, 0]
            state = (_onto(after[0], state[0]), _onto(after[1], state[1]))
            fed = _onto(merged, fed)
            found.append(fed)  # of spans that have ended it is not read
        back = order.argsort()
        end = DecoderCache(cache.source, cache.prepared, cache.is_token, state, fed)
        return torch.stack(found, 1)[back], select(end, back)

    def _look(self, states: Tensor, cache: DecoderCache) -> Tensor:
        """The decoder's states with what they find in the source."""
        if self.source_attention is None:
            return states
        context, _ = self.source_attention(states, cache.source, cache.prepared, cache.is_token)
        return torch.tanh(self.merge(torch.cat([context.to(states.dtype), states], -1)))


def _lstm(settings: Seq2Seq, entering: int, width: int, *, both: bool) -> nn.LSTM:
    return nn.LSTM(
        entering,
        width,
        settings.layers,
        bias=settings.bias,
        batch_first=True,
        dropout=settings.dropout if settings.layers > 1 else 0.0,
        bidirectional=both,
    )


def _document_spans(batch: Batch) -> DocumentSpans:
    documents = batch.documents
    return DocumentSpans.of(torch.zeros_like(batch.ids) if documents is None else documents)


def _run(
    core: nn.LSTM,
    x: Tensor,
    lengths: Tensor | None,
    state: State | None,
    layers: Sequence[nn.RNNBase] | None = None,
) -> tuple[Tensor, State]:
    """States of the last layer (spans, longest, width) in x's dtype, and the state at each end.

    Products within a recurrence are small, and errors would add up from step to step: so the
    recurrence itself is in float32 at the least.
    """
    dtype = at_least_float32(x.dtype)
    given = None
    if state is not None:
        given = tuple(part.to(dtype).transpose(0, 1).contiguous() for part in state)
    with torch.autocast(x.device.type, enabled=False):
        entering: Tensor | PackedSequence = x.to(dtype)
        if lengths is not None:
            entering = pack_padded_sequence(
                x.to(dtype), lengths.cpu(), batch_first=True, enforce_sorted=False
            )
        found, (h, c) = through(core, entering, given, layers)
        states = found if lengths is None else pad_packed_sequence(found, batch_first=True)[0]
    return states.to(x.dtype), (h.transpose(0, 1), c.transpose(0, 1))


def _masked(state: State, which: Tensor, is_found: Tensor) -> State:
    """The states of the spans found, zeros for the others."""
    h, c = (part[which] * is_found[:, None, None].to(part.dtype) for part in state)
    return h, c


def _onto(new: Tensor, old: Tensor) -> Tensor:
    """`old` with its first rows replaced."""
    return torch.cat([new.to(old.dtype), old[len(new) :]])
