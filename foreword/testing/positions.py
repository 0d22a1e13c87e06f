"""The contract of position schemes: a function for each promise."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from foreword.models.transformer import Transformer
from foreword.nn.init import initialise
from foreword.nn.masks import CausalMask, DocumentMask, FullMask, Mask
from foreword.nn.model import Backbone, Model
from foreword.nn.positions._contract import PositionKind
from foreword.testing.cases import SEED, SIZE
from foreword.types import Batch


def check_position(position: PositionKind) -> None:
    """Check all that a position scheme promises.

    Args:
        position: the position scheme, a frozen dataclass, for rows of at least 64 tokens.

    Raises:
        AssertionError: a promise is broken.
    """
    for check in POSITION_CHECKS:
        check(position)


def _build(position: PositionKind, *, is_causal: bool) -> Backbone:
    """Return a small Transformer with random position parameters, so that positions matter."""
    settings = Transformer(
        d_model=24,
        layers=2,
        heads=2,
        dropout=0.0,
        attention_dropout=0.0,
        init_std=0.2,
        position=position,
        assumes_causal_mask=is_causal,
    )
    backbone = settings.build(SIZE)
    initialise(Model(backbone, torch.nn.ModuleDict()), SEED)
    for name, parameter in backbone.named_parameters():
        if "position" in name:
            torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
    return backbone.eval()


def _ids(batch: int, length: int) -> Tensor:
    return torch.randint(0, SIZE, (batch, length), generator=torch.Generator().manual_seed(1))


def _batch(tokens: Tensor, mask: Mask, start: int = 0) -> Batch:
    positions = torch.arange(start, start + tokens.shape[1]).expand(len(tokens), -1)
    return Batch(tokens, positions, mask)


@torch.no_grad()
def check_packed_documents_are_each_alone(position: PositionKind) -> None:
    """Check that a document has the same states alone and packed with others in a row."""
    for is_causal in (False, True):
        model = _build(position, is_causal=is_causal)
        direction = CausalMask() if is_causal else FullMask()
        lengths, row = [5, 40, 1, 7], _ids(1, 53)
        documents = torch.repeat_interleave(torch.arange(4), torch.tensor(lengths))[None]
        positions = torch.cat([torch.arange(n) for n in lengths])[None]
        mask = direction & DocumentMask(documents, documents)
        packed = model(Batch(row, positions, mask)).states
        start = 0
        for length in lengths:
            part = slice(start, start + length)
            alone = model(_batch(row[:, part], direction)).states
            torch.testing.assert_close(packed[:, part], alone, atol=1e-5, rtol=1e-5)
            start += length


@torch.no_grad()
def check_a_cache_changes_nothing(position: PositionKind) -> None:
    """Check that tokens read chunk by chunk, with a cache, have the states of a whole row."""
    model, row = _build(position, is_causal=True), _ids(2, 20)
    expected = model(_batch(row, CausalMask())).states
    for chunks in ([1] * 20, [12, 1, 1, 6], [19, 1]):
        cache, start, states = None, 0, []
        for length in chunks:
            part = row[:, start : start + length]
            hidden = model(_batch(part, CausalMask(start), start), cache)
            cache, start = hidden.cache, start + length
            states.append(hidden.states)
        torch.testing.assert_close(torch.cat(states, 1), expected, atol=1e-5, rtol=1e-5)


def check_the_limit_is_the_longest_row(position: PositionKind) -> None:
    """Check that rows up to `limit` are possible, and that longer ones raise IndexError."""
    length = position.limit or 600
    scheme = position.build(8, 2, 4, layers=2, is_causal=False)
    scheme.embed(torch.arange(length)[None])
    if position.limit is None:
        return
    try:
        scheme.embed(torch.tensor([[length]]))
    except IndexError:
        return
    raise AssertionError(f"the limit is {position.limit}, and position {length} is accepted")


def check_only_absolute_positions_are_added(position: PositionKind) -> None:
    """A scheme adds vectors to the embeddings if its kind is absolute, and else none."""
    scheme = position.build(24, 2, 12, layers=2, is_causal=True)
    added = scheme.embed(torch.arange(4)[None])
    assert position.is_absolute == (added is not None), "is_absolute says whether `embed` adds"


POSITION_CHECKS: tuple[Callable[[PositionKind], None], ...] = (
    check_only_absolute_positions_are_added,
    check_packed_documents_are_each_alone,
    check_a_cache_changes_nothing,
    check_the_limit_is_the_longest_row,
)
