"""LSTM encoder-decoders: one LSTM reads the source, the other writes the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from foreword.nn.cache import select
from foreword.nn.document_spans import DocumentSpans
from foreword.nn.dropout import Dropout
from foreword.nn.model import Backbone, ModelSettings, SourceBackbone
from foreword.nn.positions.none import None_
from foreword.nn.precision import at_least_float32
from foreword.nn.source_attentions._contract import SourceAttentionKind
from foreword.nn.unrolled import layers_of, run_layers
from foreword.settings.kinds import part
from foreword.types import Batch, Hidden

State = tuple[Tensor, Tensor]  # h and c of all layers, (spans, layers, d_model) each


@dataclass(frozen=True)
class Seq2Seq(ModelSettings):
    """LSTM encoder and decoder, with attention of one head or without.

    The decoder begins with the encoder's final state, layer by layer. With attention, the next word
    is predicted from the attentional state tanh(W [c; h]) of the decoder's state h and the context
    c, the mean of the source's states weighted by attention.

    Attributes:
        attention: attention to the source, a kind in `nn/source_attentions/`.
        bidirectional: read the source in both directions, each with half of d_model.
        input_feeding: feed each attentional state into the decoder's next step, so that it knows
            what was attended to; the decoder then runs step by step.

    `dropout` applies to embeddings, between layers and to attentional states.

    Reference: Sutskever et al. 2014; Bahdanau et al. 2015; Luong et al. 2015 (sections 3, 3.3).
    Differs from the papers: LSTMs, where Bahdanau et al. have gated units without a cell; the
    decoder attends after its step, as in Luong et al., not before it. Both sides share one
    embedding. The source is not reversed as in Sutskever et al., but may be read in both
    directions.
    """

    reads_source: ClassVar[bool] = True

    attention: SourceAttentionKind = part("nn/source_attentions", "additive")
    bidirectional: bool = True
    input_feeding: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bidirectional and self.d_model % 2:
            raise ValueError(f"d_model: bidirectional requires an even number, got {self.d_model}")
        if self.input_feeding and self.attention.build(1) is None:
            raise ValueError("input_feeding: requires an attention; without one h is fed anyway")

    @property
    def depth(self) -> int:
        """Number of layers of encoder and decoder together."""
        return 2 * self.layers

    def build(self, vocab: int) -> Backbone:
        return Seq2seqBackbone(self, vocab)


@dataclass(frozen=True)
class DecoderCache:
    """The source as the decoder attends to it, and the decoder's state; one span a row.

    Attributes:
        source: the encoder's states, (spans, source length, d_model).
        prepared: output of the attention's `prepare` on them.
        is_token: which of them are not padding, (spans, source length) bool.
        state: state of the decoder.
        fed: last attentional state, (spans, d_model).
    """

    source: Tensor
    prepared: Tensor
    is_token: Tensor
    state: State
    fed: Tensor


class Seq2seqBackbone(SourceBackbone):
    """Embedding, encoder, decoder, attention.

    Each document of a packed row is a separate sequence, and no step is computed for padding.
    """

    def __init__(self, settings: Seq2Seq, vocab: int) -> None:
        super().__init__()
        self.settings = settings
        self.embedding = settings.build_embedding(vocab, projects=False)
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
        """Return the decoder's attentional states (batch, length, d_model).

        With `cache` of an earlier call the source is not read again. Rows of several documents
        return no cache.
        """
        x = self.embedding(batch, self.position)
        if cache is not None:
            states, cache = self._decode(x, None, cache)
            return Hidden(self.dropout(states), cache)
        assert batch.source is not None
        return self._translate(batch, x, self.embedding(batch.source, self.position))

    def layer_modules(self) -> list[nn.Module]:
        """Return the layers of the encoder, then those of the decoder, attention with the last."""
        lstms = [*layers_of(self.encoder), *layers_of(self.decoder)]
        layers = [nn.ModuleList([lstm]) for lstm in lstms]
        layers[-1] += [each for each in (self.source_attention, self.merge) if each is not None]
        return list(layers)

    def with_layer_gradients(self, batch: Batch) -> Hidden:
        """Like `forward`, for gradients; `layers` is the encoder's input alone."""
        assert batch.source is not None
        source = self.embedding(batch.source, self.position)
        hidden = self._translate(batch, self.embedding(batch, self.position), source)
        return replace(hidden, layers=(source,))

    def _translate(self, batch: Batch, x: Tensor, source: Tensor) -> Hidden:
        """Return the decoder's states and cache from the embeddings of both sides."""
        assert batch.source is not None
        # Encode each source, then match it to its target.
        source_spans = _document_spans(batch.source)
        spans = _document_spans(batch)
        encoded, state = self._encode(source, source_spans)
        source_of, has_source = spans.match(source_spans)
        encoded = encoded[source_of]
        initial = DecoderCache(
            source=encoded,
            prepared=encoded
            if self.source_attention is None
            else self.source_attention.prepare(encoded),
            is_token=source_spans.is_token()[source_of] & has_source[:, None],
            state=_select_states(state, source_of, has_source),
            fed=encoded.new_zeros(len(spans), self.settings.d_model),
        )
        # Decode, and put the documents back into their rows.
        states, after = self._decode(spans.cut(x), spans.lengths, initial)
        joined = spans.join(states, (x.shape[0], x.shape[1]))
        one_per_row = len(spans) == len(x) and bool((spans.starts == 0).all())
        return Hidden(self.dropout(joined), after if one_per_row else None)

    def encode(self, source: Batch) -> Tensor:
        spans = _document_spans(source)
        states, _ = self._encode(self.embedding(source, self.position), spans)
        return spans.join(states, (source.ids.shape[0], source.ids.shape[1]))

    def _encode(self, source: Tensor, spans: DocumentSpans) -> tuple[Tensor, State]:
        """Return states (spans, longest, d_model), and the final state of each layer."""
        states, after = _run(self.encoder, spans.cut(source), spans.lengths, None)
        # (spans, layers * directions, width) becomes (spans, layers, d_model).
        h, c = (part.reshape(len(spans), self.settings.layers, -1) for part in after)
        return states, (h, c)

    def _decode(
        self, x: Tensor, lengths: Tensor | None, cache: DecoderCache
    ) -> tuple[Tensor, DecoderCache]:
        """Return attentional states, (spans, length, d_model), and the cache after them."""
        if self.feeds:
            return self._decode_step_by_step(x, lengths, cache)
        states, state = _run(self.decoder, x, lengths, cache.state)
        merged = self._attend(states, cache)
        return merged, DecoderCache(cache.source, cache.prepared, cache.is_token, state, cache.fed)

    def _decode_step_by_step(
        self, x: Tensor, lengths: Tensor | None, cache: DecoderCache
    ) -> tuple[Tensor, DecoderCache]:
        """Like `_decode`, with the attentional state of each step fed into the next."""
        if lengths is None:
            lengths = torch.full((len(x),), x.shape[1], device=x.device)
        order = lengths.argsort(descending=True, stable=True)  # unfinished ones come first
        x, lengths, cache = x[order], lengths[order], select(cache, order)
        state, fed = cache.state, cache.fed
        layers = layers_of(self.decoder)
        outputs = []
        for step in range(x.shape[1]):
            n = int((lengths > step).sum())  # unfinished spans
            first = slice(n)
            step_input = torch.cat([x[:n, step], fed[:n]], -1)[:, None]
            before = (state[0][:n], state[1][:n])
            h, after = _run(self.decoder, step_input, None, before, layers)
            merged = self._attend(h, select(cache, first))[:, 0]
            state = (_replace_first(after[0], state[0]), _replace_first(after[1], state[1]))
            fed = _replace_first(merged, fed)
            outputs.append(fed)  # those of finished spans are not read
        back = order.argsort()
        end = DecoderCache(cache.source, cache.prepared, cache.is_token, state, fed)
        return torch.stack(outputs, 1)[back], select(end, back)

    def _attend(self, states: Tensor, cache: DecoderCache) -> Tensor:
        """Return the decoder's states merged with their context, the attentional states."""
        if self.source_attention is None:
            return states
        context, _ = self.source_attention(states, cache.source, cache.prepared, cache.is_token)
        return torch.tanh(self.merge(torch.cat([context.to(states.dtype), states], -1)))


def _lstm(settings: Seq2Seq, inputs: int, width: int, *, both: bool) -> nn.LSTM:
    return nn.LSTM(
        inputs,
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
    """Return states of the last layer (spans, longest, width) in x's dtype, and the final state.

    Products within a recurrence are small, and errors accumulate over steps, so the recurrence is
    in float32 at least.
    """
    dtype = at_least_float32(x.dtype)
    initial = None
    if state is not None:
        initial = tuple(part.to(dtype).transpose(0, 1).contiguous() for part in state)
    with torch.autocast(x.device.type, enabled=False):
        sequence: Tensor | PackedSequence = x.to(dtype)
        if lengths is not None:
            sequence = pack_padded_sequence(
                x.to(dtype), lengths.cpu(), batch_first=True, enforce_sorted=False
            )
        output, (h, c) = run_layers(core, sequence, initial, layers)
        states = output if lengths is None else pad_packed_sequence(output, batch_first=True)[0]
    return states.to(x.dtype), (h.transpose(0, 1), c.transpose(0, 1))


def _select_states(state: State, index: Tensor, is_valid: Tensor) -> State:
    """Return the states at `index`, zeros where it is not valid."""
    h, c = (part[index] * is_valid[:, None, None].to(part.dtype) for part in state)
    return h, c


def _replace_first(new: Tensor, old: Tensor) -> Tensor:
    """Return `old` with its first rows replaced by `new`."""
    return torch.cat([new.to(old.dtype), old[len(new) :]])
