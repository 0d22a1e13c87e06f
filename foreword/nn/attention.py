"""Multi-head attention: ((softmax((Q K' + E) / sqrt(d) + B + M) V + P) * G) W_O.

| letter | meaning | computed by |
|---|---|---|
| Q | queries, x W_Q; normed if `qk_norm`; then rotated | `Attention.query`, `PositionScheme` |
| K, V | keys and values, context (W_K, W_V); keys as queries | `Attention.keys_values`, `Block` |
| d | width of a head; 1 where scores are not scaled (T5) | `Attention.scale` |
| E | content-dependent position scores (Shaw, Transformer-XL) | `PositionScheme.scores` |
| B | position bias (ALiBi, T5) | `PositionScheme.bias` |
| M | 0 where the mask allows the pair, else minus infinity[1] | `masks.Mask`, `prepare_mask` |
| P | what a learned prefix adds, if there is one | `AttentionPrefix` |
| G | a gate of each number, sigmoid(x W_G), if there is one | `Attention.gate` |
| W_O | output projection | `Attention.output` |

[1] A dense mask has half the least number of its type, so that a query without keys is not NaN.

The softmax and its product with V are the attention mechanism's (`AttentionMechanism`):
`attend` below computes all pairs, the kinds in `nn/attentions/` fewer.

Self-attention, cross-attention, key-value cache, memory and query stream are the same code with
another context. B and M are prepared once per forward pass and shared by the layers
(`PreparedMask`): a dense tensor for `scaled_dot_product_attention` on the CPU; on CUDA the edges of
documents, for a kernel that never leaves one, or else a FlexAttention block mask.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foreword.errors import UserError
from foreword.nn.attention_prefix import AttentionPrefix
from foreword.nn.attentions._contract import AttentionMechanism
from foreword.nn.cache import Cache
from foreword.nn.dropout import dropout as drop
from foreword.nn.linear import Linear
from foreword.nn.masks import AndMask, CausalMask, DocumentMask, FullMask, Mask
from foreword.nn.norm import RMSNorm
from foreword.nn.positions._contract import AttentionPositions, PositionScheme
from foreword.nn.precision import compute_dtype

SHORT = 512  # keys up to which attention on the CPU is computed by hand


@functools.cache
def has_triton() -> bool:
    """Return whether GPU kernels can be compiled, which FlexAttention requires."""
    from torch.utils._triton import has_triton as can_compile

    return bool(can_compile())


@dataclass(frozen=True)
class FlexMask:
    """A mask and a bias for FlexAttention, a fused kernel that skips masked blocks.

    Attributes:
        block: its block mask.
        bias: added to the scores, (heads, queries, keys); or None.
    """

    block: Any
    bias: Tensor | None = None

    @classmethod
    def runs_on(cls, x: Tensor) -> bool:
        """Return whether it computes attention of tensors like x."""
        return x.is_cuda and has_triton()

    @classmethod
    def of(
        cls, mask: Mask, bias: Tensor | None, shape: tuple[int, int, int], like: Tensor, heads: int
    ) -> FlexMask:
        """Return a mask and a bias for it; arguments as in `prepare_mask`."""
        from torch.nn.attention.flex_attention import create_block_mask

        def allows(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Any:
            return mask.allows(b, h, i, j)  # torch requires four arguments and counts `self`

        batch, queries, keys = shape
        head = heads if heads > 1 else None
        return cls(create_block_mask(allows, batch, head, queries, keys, device=like.device), bias)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """Return attention; arguments as in `attend`."""
        bias = self.bias

        def add_bias(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score if bias is None else score + bias[h, i, j]

        out: Tensor = _flex()(q, k, v, None if bias is None else add_bias, self.block, scale)
        return out


_flex_masks: ContextVar[type[FlexMask] | None] = ContextVar("flex_masks", default=FlexMask)


@contextmanager
def flex_masks(kind: type[FlexMask] | None) -> Iterator[None]:
    """Prepare masks for FlexAttention as this class within the context; None for dense ones."""
    token = _flex_masks.set(kind)
    try:
        yield
    finally:
        _flex_masks.reset(token)


def dense_only() -> AbstractContextManager[None]:
    """Make masks dense tensors on every device, to compare engines or count FLOPs."""
    return flex_masks(None)


def can_flex(x: Tensor) -> bool:
    """Return whether FlexAttention computes attention of tensors like x."""
    kind = _flex_masks.get()
    return kind is not None and kind.runs_on(x)


def uses_flex(flex: bool) -> bool:
    """Return `flex`, or False within `dense_only`."""
    return flex and _flex_masks.get() is not None


@dataclass(frozen=True)
class PreparedMask:
    """A mask and a bias, prepared for one engine.

    Attributes:
        dense: added to the scores, (batch or 1, heads or 1, queries, keys) float; or None.
        is_causal: the plain causal mask, which kernels know without a tensor; with `spans`, within
            each of them.
        spans: where documents begin and end in the flattened rows, which attention does not
            leave, on CUDA, (spans + 1,) int32; or None.
        flex: mask and bias for FlexAttention, on CUDA; or None.
        empty: queries without any key, (batch or 1, heads or 1, queries, 1) bool; None if none.
    """

    dense: Tensor | None = None
    is_causal: bool = False
    spans: Tensor | None = None
    flex: FlexMask | None = None
    empty: Tensor | None = None

    @property
    def is_dense(self) -> bool:
        """Whether all there is are tensors over queries and keys."""
        return self.flex is None and self.spans is None and not self.is_causal

    def select_queries(self, queries: Tensor) -> PreparedMask:
        """Return the prepared mask of some queries of each row.

        Args:
            queries: (batch, chosen) int64.

        Raises:
            UserError: the engine cannot select queries.
        """
        if not self.is_dense:
            raise UserError("layout.kind: a query stream requires masks that are dense tensors")

        def select(table: Tensor | None) -> Tensor | None:
            if table is None:
                return None
            table = table.expand(len(queries), -1, -1, -1)
            at = queries[:, None, :, None].expand(-1, table.shape[1], -1, table.shape[3])
            return table.gather(2, at)

        return PreparedMask(dense=select(self.dense), empty=select(self.empty))


def prepare_mask(
    mask: Mask,
    bias: Tensor | None,
    shape: tuple[int, int, int],
    like: Tensor,
    *,
    flex: bool,
    heads: int = 1,
) -> PreparedMask:
    """Prepare `mask` and `bias` for the engine that will compute attention.

    Args:
        mask: which query may look at which key.
        bias: added to the scores, (heads, queries, keys), or None.
        shape: batch, queries, keys.
        like: a tensor of the device and dtype of the scores, and in its last dimension as wide as
            a head.
        flex: use FlexAttention, or for documents alone a faster kernel (CUDA).
        heads: number of heads, for a mask that differs between them.
    """
    batch, queries, keys = shape
    # Masks that need no tensor: full, plain causal, one new query after a cache.
    if bias is None and isinstance(mask, FullMask):
        return PreparedMask()
    if bias is None and isinstance(mask, CausalMask):
        if mask.offset == 0 and queries == keys and (like.is_cuda or keys > SHORT):
            return PreparedMask(is_causal=True)
        if queries == 1 and mask.offset >= keys - 1:
            return PreparedMask()  # one new query sees the whole cache
    # CUDA: spans of documents; or a sparse block mask, with the bias added by a score function.
    if uses_flex(flex) and takes_spans(mask, bias, like):
        parts = (mask.left, mask.right) if isinstance(mask, AndMask) else (mask,)
        assert isinstance(parts[-1], DocumentMask)
        return PreparedMask(is_causal=len(parts) == 2, spans=parts[-1].span_edges())
    if flex and (kind := _flex_masks.get()) is not None:
        return PreparedMask(flex=kind.of(mask, bias, shape, like, heads))
    # Elsewhere: one dense tensor, added to the scores.
    allowed = mask.dense(batch, queries, keys, like.device, heads)
    dense = torch.zeros(allowed.shape, dtype=like.dtype, device=like.device)
    # Half the least number rather than -inf: a query without keys must not become NaN.
    dense = dense.masked_fill_(~allowed, torch.finfo(like.dtype).min / 2)
    empty = None
    if (
        queries != keys or not mask.sees_itself
    ):  # otherwise no query is empty, and checking would wait for the GPU
        empty = ~allowed.any(-1, keepdim=True)
        empty = empty if torch.compiler.is_exporting() or empty.any() else None
    return PreparedMask(dense=dense if bias is None else dense + bias.to(like.dtype), empty=empty)


def takes_spans(mask: Mask, bias: Tensor | None, like: Tensor) -> bool:
    """Return whether a kernel of CUDA computes attention, with dropout too, span by span.

    Args:
        mask: only that of documents within a row, causal or not, is computed so.
        bias: added to the scores, which it cannot.
        like: see `prepare_mask`.
    """
    if isinstance(mask, AndMask) and mask.left == CausalMask():
        mask = mask.right
    if bias is not None or not isinstance(mask, DocumentMask) or not mask.sees_itself:
        return False
    width = like.shape[-1]
    return _has_span_kernel(like.device, like.dtype) and width % 8 == 0 and 0 < width <= 256


def _has_span_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether FlashAttention's kernels for sequences of several lengths run."""
    is_narrow = dtype in (torch.bfloat16, torch.float16)
    return device.type == "cuda" and is_narrow and torch.cuda.get_device_capability(device) >= (8,)


def _attend_in_spans(
    q: Tensor, k: Tensor, v: Tensor, prepared_mask: PreparedMask, scale: float, dropout: float
) -> Tensor:
    """Return `attend` within spans of the flattened rows, (batch, heads, length, d_head)."""
    batch, heads, length, width = q.shape
    edges, dtype = prepared_mask.spans, compute_dtype(v)
    q, k, v = (x.transpose(1, 2).reshape(batch * length, heads, width).to(dtype) for x in (q, k, v))
    out: Tensor = torch.ops.aten._flash_attention_forward(
        q, k, v, edges, edges, length, length, dropout, prepared_mask.is_causal, False, scale=scale
    )[0]
    return out.view(batch, length, heads, width).transpose(1, 2)


def _flex() -> Callable[..., Any]:
    """Return FlexAttention, compiled unless it is being compiled as part of a block."""
    from torch.nn.attention.flex_attention import flex_attention

    plain: Callable[..., Any] = flex_attention
    return plain if torch.compiler.is_compiling() else _compiled_flex()


@functools.cache
def _compiled_flex() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention

    # Default dynamic shapes: a second length or batch size compiles for all sizes. Past torch's
    # limit of recompilations FlexAttention would run uncompiled, with all scores in memory.
    return torch.compile(flex_attention)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    prepared_mask: PreparedMask,
    scale: float,
    dropout: float,
    position_scores: Tensor | None = None,
) -> Tensor:
    """Return softmax(scale (q k' + position_scores) + bias) v over the allowed keys.

    Args:
        q: (batch, heads, queries, d_head).
        k: (batch, heads, keys, d_head).
        v: (batch, heads, keys, d_head).
        prepared_mask: mask M and bias B.
        scale: factor of the scores, 1 / sqrt(d).
        dropout: share of attention weights dropped.
        position_scores: E, added before scaling, (batch, heads, queries, keys); or None.

    Returns:
        (batch, heads, queries, d_head); zeros for a query without keys.
    """
    if prepared_mask.spans is not None:
        return _attend_in_spans(q, k, v, prepared_mask, scale, dropout)
    if prepared_mask.flex is not None:
        return prepared_mask.flex.attend(q, k, v, scale)
    # Explicit products: needed for E, and faster than SDPA on short rows on the CPU.
    if position_scores is not None or _is_explicit_faster(q, k, prepared_mask, dropout):
        scores = (q if scale == 1 else q * scale) @ k.transpose(-2, -1)
        if position_scores is not None:
            scores = scores.add_(position_scores, alpha=scale)
        if prepared_mask.dense is not None:
            scores = scores.add_(prepared_mask.dense.to(scores.dtype))  # mixed dtypes are slow
        if prepared_mask.is_causal:
            future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu_(1)
            scores = scores.masked_fill_(future, float("-inf"))
        weights = torch.softmax(scores, -1).to(scores.dtype)  # autocast gives float32 on CUDA
        output = drop(weights, dropout) @ v
    else:
        output = F.scaled_dot_product_attention(
            q, k, v, prepared_mask.dense, dropout, is_causal=prepared_mask.is_causal, scale=scale
        )
    # A query without keys attends to nothing.
    return output if prepared_mask.empty is None else output.masked_fill(prepared_mask.empty, 0.0)


def _is_explicit_faster(q: Tensor, k: Tensor, prepared_mask: PreparedMask, dropout: float) -> bool:
    """Return whether two matrix products and a softmax are faster than every kernel of SDPA.

    On the CPU its flash kernel takes up to four times as long on short rows, forward and backward;
    with dropout or a learned bias SDPA falls back to more passes than these.
    """
    if prepared_mask.is_causal:
        return False
    is_learned = prepared_mask.dense is not None and prepared_mask.dense.requires_grad
    is_short = torch.compiler.is_exporting() or k.shape[2] <= SHORT
    return is_learned or (not q.is_cuda and (is_short or dropout > 0))


@dataclass(frozen=True)
class AttentionInputs:
    """The inputs of one layer's attention besides queries, keys and values.

    Attributes:
        prepared_mask: mask and bias, prepared by the attention kind's `prepare`.
        mechanism: computes attention from queries, keys and values.
        position: rotates the queries and adds to their scores; None in cross-attention.
        positions: positions of the queries.
        layer: index of the block in its stack.
        at: the positions that the layer's output has, (batch, queries) int64; None for all.
    """

    prepared_mask: Any
    mechanism: AttentionMechanism
    position: PositionScheme | None
    positions: AttentionPositions
    layer: int
    at: Tensor | None = None

    def select(self, at: Tensor) -> AttentionInputs | None:
        """Return the inputs of some queries of each row, without cache or memory.

        Args:
            at: (batch, queries) int64.

        Returns:
            None if the engine cannot select queries.
        """
        prepared = self.prepared_mask
        if not isinstance(prepared, PreparedMask) or not prepared.is_dense:
            return None
        positions = replace(self.positions, queries=at)
        return replace(self, prepared_mask=prepared.select_queries(at), positions=positions, at=at)


@dataclass(frozen=True)
class AttentionParts:
    """What attention has besides its four linear maps.

    Attributes:
        prefix: number of learned keys and values besides those of the context; 0 for none.
        norm_eps: added to the mean square of queries and keys, if they are normalised.
        gate: whether what a query gathers is gated.
    """

    prefix: int = 0
    norm_eps: float | None = None
    gate: bool = False


class Attention(nn.Module):
    """Multi-head attention with its projections (Vaswani et al. 2017, section 3.2.2).

    Args:
        d_model: width of x and of the context.
        heads: number of heads.
        d_head: width of a head; heads * d_head need not be d_model.
        bias: whether the linear maps have biases.
        is_scaled: whether scores are divided by sqrt(d_head); not in T5.
        dropout: share of attention weights dropped in training; not of those of the prefix.
        parts: what it has besides.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        d_head: int,
        *,
        bias: bool,
        is_scaled: bool,
        dropout: float,
        parts: AttentionParts = AttentionParts(),
    ) -> None:
        super().__init__()
        self.heads, self.d_head, self.dropout = heads, d_head, dropout
        self.scale = d_head**-0.5 if is_scaled else 1.0
        self.query = Linear(d_model, heads * d_head, bias=bias)
        self.key_value = Linear(d_model, 2 * heads * d_head, bias=bias)
        self.output = Linear(heads * d_head, d_model, bias=bias)
        eps = parts.norm_eps
        self.query_norm = None if eps is None else RMSNorm(d_head, eps)
        self.key_norm = None if eps is None else RMSNorm(d_head, eps)
        self.gate = Linear(d_model, heads * d_head, bias=bias) if parts.gate else None
        self.prefix = AttentionPrefix(parts.prefix, heads, d_head) if parts.prefix else None

    def keys_values(self, context: Tensor) -> Cache:
        """Return K and V, (batch, keys, d_model) -> two of (batch, heads, keys, d_head)."""
        batch, length, _ = context.shape
        both = self.key_value(context).view(batch, length, 2, self.heads, self.d_head)
        k, v = both.unbind(2)
        k = k if self.key_norm is None else self.key_norm(k)
        return k.transpose(1, 2), v.transpose(1, 2)

    def forward(self, x: Tensor, kv: Cache, inputs: AttentionInputs) -> Tensor:
        """Attend from x to keys and values.

        Args:
            x: (batch, queries, d_model).
            kv: keys (already rotated) and values, each (batch, heads, keys, d_head).
            inputs: mask, mechanism and positions.

        Returns:
            (batch, queries, d_model).
        """
        batch, length, _ = x.shape
        q = self._queries(x)
        heads = self._attend(q, *kv, inputs, self.dropout if self.training else 0.0)
        if self.prefix is not None:
            heads = heads + self.prefix(q, self.scale)
        # The concatenated heads, gated or not, times W_O.
        heads = heads.transpose(1, 2).reshape(batch, length, self.heads * self.d_head)
        heads = heads if self.gate is None else heads * torch.sigmoid(self.gate(x))
        out: Tensor = self.output(heads)
        return out

    def weights(self, x: Tensor, kv: Cache, inputs: AttentionInputs) -> Tensor:
        """Return the attention weights that `forward` multiplies the values by, without a prefix.

        Every mechanism is linear in the values, so its weights are its output for values that are
        the identity matrix.

        Returns:
            (batch, heads, queries, keys).
        """
        keys = kv[0]
        count = keys.shape[2]
        identity = torch.eye(count, dtype=keys.dtype, device=keys.device)
        identity = identity.expand(*keys.shape[:2], -1, -1)
        return self._attend(self._queries(x), keys, identity, inputs, 0.0)

    def _queries(self, x: Tensor) -> Tensor:
        """Return Q before rotation, (batch, heads, queries, d_head)."""
        batch, length, _ = x.shape
        q: Tensor = self.query(x).view(batch, length, self.heads, self.d_head)
        q = q if self.query_norm is None else self.query_norm(q)
        return q.transpose(1, 2)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, inputs: AttentionInputs, dropout: float
    ) -> Tensor:
        """Return the weighted values of each query, (batch, heads, queries, width of v)."""
        # The position scheme rotates Q or computes scores to add.
        position_scores = None
        if inputs.position is not None:
            q = inputs.position.rotate(q, inputs.positions.queries)
            position_scores = inputs.position.scores(q, k, inputs.positions, inputs.layer)
        # The softmax over the keys, times V.
        attended: Tensor = inputs.mechanism(
            q, k, v, inputs.prepared_mask, self.scale, dropout, position_scores
        )
        return attended
