"""The gated delta rule: a matrix of associations that is decayed, corrected, and read.

    S_t = a_t (I - b_t k_t k_t') S_(t-1) + b_t k_t v_t'        o_t = S_t' q_t

`step_by_step` is that formula. `in_chunks` computes the same by plain matrix products: within a
chunk the corrections u of all positions solve one triangular system, between chunks the state is
passed on (Yang et al. 2024, "Parallelizing Linear Transformers with the Delta Rule over Sequence
Length", section 3.2; with the decay, Yang et al. 2024, "Gated Delta Networks", section 3.3):

    (I + tril(b K K' * D, -1)) U = b (V - c K S)       D_ij = exp(g_i - g_j), c_i = exp(g_i)
    O = c Q S + tril(Q K' * D) U                       S <- exp(g_last) S + (K exp(g_last - g))' U

with g the logarithms of the decays, summed from the start of the chunk, or of the document where
that is later. Documents are kept apart by zeros in these factors, exactly.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from foreword.nn.masks import DocumentMask
from foreword.nn.precision import widest

SEGMENT = 1_024  # positions whose intermediate results are held at once, for gradients


class Recomputation:
    """Whether segments of long rows are computed again for their gradients.

    Attributes:
        is_off: hold all intermediate results instead, such as to count operations once.
    """

    is_off = False


class DeltaInputs(NamedTuple):
    """What the rule reads at each position.

    Attributes:
        q: queries, scaled, (batch, heads, length, d_key).
        k: keys of length 1, (batch, heads, length, d_key).
        v: values, (batch, heads, length, d_value).
        log_decay: logarithm of a, at most 0; (batch, heads, length).
        write: b, the share of a key's old value that is replaced, from 0 to 1; (batch, heads,
            length).
    """

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor
    write: Tensor


def gated_delta_rule(
    inputs: DeltaInputs, documents: Tensor | None, state: Tensor | None, chunk: int
) -> tuple[Tensor, Tensor]:
    """Return the output of each position, and the last state, by the fastest engine at hand.

    Args:
        inputs: queries, keys, values and gates.
        documents: number of each position's document, contiguous, (batch, length) int64; None if
            each row is one.
        state: state before the first position, which is of its document, (batch, heads, d_key,
            d_value); zeros if None.
        chunk: positions of a chunk, a power of two.

    Returns:
        (batch, heads, length, d_value), and (batch, heads, d_key, d_value).
    """
    if inputs.q.shape[2] == 1 and state is not None:
        return step_by_step(inputs, None, state)
    if inputs.q.is_cuda and state is None and (kernel := _kernel()) is not None:
        return _by_kernel(kernel, inputs, documents)
    if torch.is_grad_enabled() and not Recomputation.is_off:
        return _in_segments(inputs, documents, state, chunk)
    return in_chunks(inputs, documents, state, chunk)


def _in_segments(
    inputs: DeltaInputs, documents: Tensor | None, state: Tensor | None, chunk: int
) -> tuple[Tensor, Tensor]:
    """Apply the rule to long rows segment by segment, each computed again for its gradients."""
    if inputs.q.shape[2] <= SEGMENT:
        return in_chunks(inputs, documents, state, chunk)
    state = _zero_state(inputs) if state is None else state
    parts = [torch.split(x, SEGMENT, 2) for x in inputs]
    outputs = []
    for n, segment in enumerate(map(DeltaInputs, *parts)):
        part, first = None, n * SEGMENT
        if documents is not None:
            part = documents[:, first : first + SEGMENT]
            if n:
                continues = part[:, 0] == documents[:, first - 1]
                state = state * continues[:, None, None, None]
        out, state = checkpoint(
            in_chunks, segment, part, state, chunk, use_reentrant=False, preserve_rng_state=False
        )
        outputs.append(out)
    return torch.cat(outputs, 2), state


def step_by_step(
    inputs: DeltaInputs, documents: Tensor | None, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Apply the rule position by position; arguments as in `gated_delta_rule`."""
    q, k, v, log_decay, write = inputs
    state = _zero_state(inputs) if state is None else state
    outputs = []
    for t in range(q.shape[2]):
        if documents is not None and t:
            continues = documents[:, t] == documents[:, t - 1]
            state = state * continues[:, None, None, None]
        state = state * log_decay[:, :, t, None, None].exp()
        key = k[:, :, t, :, None]
        correction = write[:, :, t, None, None] * (v[:, :, t, None] - key.transpose(-2, -1) @ state)
        state = state + key * correction
        outputs.append(q[:, :, t, None] @ state)
    return torch.cat(outputs, 2), state


def in_chunks(
    inputs: DeltaInputs, documents: Tensor | None, state: Tensor | None, chunk: int
) -> tuple[Tensor, Tensor]:
    """Apply the rule chunk by chunk; arguments as in `gated_delta_rule`."""
    batch, _, length, _ = inputs.q.shape
    chunk = min(chunk, 1 << (length - 1).bit_length())
    count = -(-length // chunk)
    # Cut into chunks; padding writes nothing, decays nothing, and is of the last document.
    padding = count * chunk - length
    q, k, v = (_cut(F.pad(x, (0, 0, 0, padding)), chunk) for x in inputs[:3])
    log_decay, write = (_cut(F.pad(x, (0, padding)), chunk) for x in inputs[3:])
    if documents is None:
        documents = torch.zeros(batch, length, dtype=torch.int64, device=q.device)
    documents = torch.cat([documents, documents[:, -1:].expand(-1, padding)], 1)
    documents = documents.view(batch, count, chunk)
    # Which positions see each other, the state before the chunk, and the end of the chunk.
    sees = (documents[..., :, None] == documents[..., None, :]).tril()  # (batch, count, c, c)
    before = torch.cat([documents[:, :1, :1], documents[:, :-1, -1:]], 1)
    continues = (documents == before)[:, None]  # (batch, 1, count, chunk)
    lasts = (documents == documents[..., -1:])[:, None]
    # The decays between positions, from the state before, and to the state after. Sums may be
    # hundreds, of which small differences count, so they are of float64.
    wide = widest(q.device)
    summed = (sees.to(wide) @ log_decay.to(wide).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    between = _exp((summed[..., :, None] - summed[..., None, :]).to(q.dtype), sees[:, None])
    since = _exp(summed.to(q.dtype), continues)[..., None]  # (batch, heads, count, chunk, 1)
    until = _exp((summed[..., -1:] - summed).to(q.dtype), lasts)[..., None]
    # The triangular system, solved for what does not depend on the state, and for what does.
    system = write[..., None] * (k @ k.transpose(-2, -1)) * between
    write = write[..., None]
    solved = _inverse(system) @ torch.cat([write * v, write * since * k], -1)
    d_value = v.shape[-1]
    # From chunk to chunk: S <- transition S + new.
    kept = (k * until).transpose(-2, -1) @ solved  # (batch, heads, count, d_key, d_value + d_key)
    identity = torch.eye(k.shape[-1], dtype=k.dtype, device=k.device)
    transition = since[..., -1:, :] * identity - kept[..., d_value:]
    states = [_zero_state(inputs) if state is None else state]
    for new, step in zip(kept[..., :d_value].unbind(2), transition.unbind(2), strict=True):
        states.append(new + step @ states[-1])
    # All chunks at once: the corrections, and what queries read.
    earlier = torch.stack(states[:-1], 2)
    corrections = solved[..., :d_value] - solved[..., d_value:] @ earlier
    out = (q * since) @ earlier + ((q @ k.transpose(-2, -1)) * between) @ corrections
    return out.flatten(2, 3)[:, :, :length], states[-1]


def _cut(x: Tensor, chunk: int) -> Tensor:
    """Return (batch, heads, length, ...) as (batch, heads, chunks, chunk, ...)."""
    return torch.unflatten(x, 2, (-1, chunk))


def _exp(exponent: Tensor, allowed: Tensor) -> Tensor:
    """Return the exponential where it is allowed, else 0; what is not may be too large."""
    return exponent.masked_fill(~allowed, float("-inf")).exp()


def _zero_state(inputs: DeltaInputs) -> Tensor:
    batch, heads, _, d_key = inputs.k.shape
    return inputs.k.new_zeros(batch, heads, d_key, inputs.v.shape[-1])


def _inverse(system: Tensor) -> Tensor:
    """Return the inverses of I plus the parts of matrices below the diagonal.

    Blocks on the diagonal are joined in pairs, [[A, 0], [B, C]] -> [[A', 0], [-C' B A', C']], as
    stable as substitution, and products alone.

    Args:
        system: (..., size, size), size a power of two.
    """
    inverse: Tensor = _Inverse.apply(system)  # type: ignore[no-untyped-call]
    return inverse


class _Inverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, system: Tensor) -> Tensor:
        size = system.shape[-1]
        inverse = torch.ones_like(system[..., 0])[..., None, None]  # (..., blocks, 1, 1)
        width = 1
        while width < size:
            pairs = size // (2 * width)
            blocks = system.reshape(*system.shape[:-2], pairs, 2 * width, pairs, 2 * width)
            below = blocks.diagonal(dim1=-4, dim2=-2)[..., width:, :width, :].movedim(-1, -3)
            first, second = inverse[..., ::2, :, :], inverse[..., 1::2, :, :]
            upper = torch.cat([first, torch.zeros_like(first)], -1)
            inverse = torch.cat([upper, torch.cat([-second @ below @ first, second], -1)], -2)
            width *= 2
        inverse = inverse[..., 0, :, :]
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        transposed = ctx.saved_tensors[0].transpose(-2, -1)
        d_system: Tensor = (transposed @ -grads[0] @ transposed).tril(-1)
        return d_system


@functools.cache
def _kernel() -> Callable[..., Any] | None:
    """Return the rule of `flash-linear-attention`, for CUDA; None where it is not installed."""
    try:
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    except ImportError:
        return None
    rule: Callable[..., Any] = chunk_gated_delta_rule
    return rule


def _by_kernel(
    kernel: Callable[..., Any], inputs: DeltaInputs, documents: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Apply the rule by a kernel, to rows or to the documents in them, from a state of zeros."""
    batch, _, length, _ = inputs.q.shape
    given = [x.transpose(1, 2).contiguous() for x in inputs]  # (batch, length, heads, ...)
    edges = None
    if documents is not None:
        edges = torch.unique(DocumentMask(documents, documents).span_edges()).long()
        given = [x.flatten(0, 1)[None] for x in given]
    q, k, v, log_decay, write = given
    out, states = kernel(
        q, k, v, g=log_decay, beta=write, scale=1.0, output_final_state=True, cu_seqlens=edges
    )
    if edges is not None:  # the last document of each row ends where the row does
        ends = torch.arange(1, batch + 1, device=edges.device) * length
        states = states[torch.searchsorted(edges, ends) - 1]
    return out.view(batch, length, *out.shape[2:]).transpose(1, 2), states
