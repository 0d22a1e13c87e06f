"""What every position scheme promises, for every file in `nn/positions/`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from foreword.models.transformer import TransformerBackbone
from foreword.nn.attention import SHORT
from foreword.nn.init import initialise
from foreword.nn.masks import (
    AndMask,
    CausalMask,
    DocumentMask,
    FullMask,
    Mask,
    PermutationMask,
    PrefixMask,
)
from foreword.nn.model import Backbone, Model
from foreword.nn.positions._contract import PositionKind
from foreword.settings import kinds
from foreword.testing.positions import POSITION_CHECKS
from foreword.types import Batch, Queries

from .cases import SEED, SIZE, tiny

every_position = pytest.mark.parametrize("position", kinds.names("nn/positions"))
# Those that number each row from 0, so that nothing can stand before it.
ABSOLUTE = [n for n in kinds.names("nn/positions") if kinds.load("nn/positions", n).is_absolute]
LONG = SHORT + 40  # the longest row here
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def build(
    model: str, position: str, *, is_causal: bool = True, two_streams: bool = False
) -> Backbone:
    settings = tiny(model, position)
    if settings.position.limit is not None:
        settings = replace(settings, position=replace(settings.position, length=LONG))
    if model == "transformer":
        settings = replace(settings, assumes_causal_mask=is_causal, two_streams=two_streams)
    backbone = settings.build(SIZE)
    initialise(Model(backbone, torch.nn.ModuleDict()), SEED)
    # A bias of T5 begins near 0; make every kind of position tell.
    for name, parameter in backbone.named_parameters():
        if "position" in name:
            torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
    backbone.eval()
    return backbone


def ids(batch: int, length: int, seed: int = 1) -> Tensor:
    return torch.randint(0, SIZE, (batch, length), generator=torch.Generator().manual_seed(seed))


def position_ids(first: int, length: int, batch: int) -> Tensor:
    return torch.arange(first, first + length).expand(batch, -1)


def plain(tokens: Tensor, mask: Mask) -> Batch:
    return Batch(tokens, position_ids(0, tokens.shape[1], len(tokens)), mask)


@every_position
@pytest.mark.parametrize("check", POSITION_CHECKS, ids=lambda check: check.__name__)
def test_every_position_scheme_keeps_the_contract(
    check: Callable[[PositionKind], None], position: str
) -> None:
    check(kinds.load("nn/positions", position)())


@every_position
@torch.no_grad()
def test_packed_pairs_give_the_states_of_each_alone(position: str) -> None:
    model = build("encoder_decoder", position)
    read, write = [6, 11], [4, 3]
    source, target = ids(1, 17), ids(1, 7, seed=2)

    def numbers(lengths: list[int]) -> tuple[Tensor, Tensor]:
        documents = torch.repeat_interleave(torch.arange(2), torch.tensor(lengths))[None]
        return documents, torch.cat([torch.arange(n) for n in lengths])[None]

    (from_, from_places), (to, to_places) = numbers(read), numbers(write)
    packed = model(
        Batch(
            target,
            to_places,
            CausalMask() & DocumentMask(to, to),
            source=Batch(source, from_places, DocumentMask(from_, from_)),
            cross_mask=DocumentMask(to, from_),
        )
    ).states
    for n in range(2):
        one = plain(source[from_ == n][None], FullMask())
        batch = replace(
            plain(target[to == n][None], CausalMask()), source=one, cross_mask=FullMask()
        )
        torch.testing.assert_close(packed[to == n][None], model(batch).states, **CLOSE)


@every_position
@torch.no_grad()
def test_long_causal_rows_equal_those_with_a_dense_mask(position: str) -> None:
    """Long causal rows use kernels that need no mask tensor."""
    model, row = build("transformer", position), ids(1, LONG)
    expected = model(plain(row, CausalMask())).states
    everywhere = torch.ones_like(row, dtype=torch.bool)
    actual = model(plain(row, AndMask(CausalMask(), PrefixMask(everywhere)))).states
    torch.testing.assert_close(actual, expected, **CLOSE)


@every_position
@torch.no_grad()
def test_caching_the_source_changes_nothing(position: str) -> None:
    model, source, row = build("encoder_decoder", position), ids(2, 13), ids(2, 9, seed=2)
    read = plain(source, FullMask())
    expected = model(replace(plain(row, CausalMask()), source=read, cross_mask=FullMask())).states
    first = Batch(
        row[:, :4], position_ids(0, 4, 2), CausalMask(), source=read, cross_mask=FullMask()
    )
    hidden = model(first)
    actual = [hidden.states]
    for n in range(4, 9):
        batch = Batch(
            row[:, n : n + 1], position_ids(n, 1, 2), CausalMask(n), cross_mask=FullMask()
        )
        hidden = model(batch, hidden.cache)
        actual.append(hidden.states)
    torch.testing.assert_close(torch.cat(actual, 1), expected, **CLOSE)


@every_position
@torch.no_grad()
def test_token_order_matters_only_with_positions(position: str) -> None:
    model, row = build("transformer", position, is_causal=False), ids(1, 12)
    # Not backwards: a bias that is the same on both sides (alibi) cannot tell.
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    there = model(plain(row, FullMask())).states[:, order]
    back = model(plain(row[:, order], FullMask())).states
    is_same = torch.allclose(there, back, **CLOSE)
    assert is_same == (position == "none")


@pytest.mark.parametrize("position", ABSOLUTE)
def test_positions_that_number_each_row_from_0_are_refused_with_memory(position: str) -> None:
    with pytest.raises(ValueError, match=r"memory: position .* numbers each row from 0"):
        replace(tiny("transformer", position), assumes_causal_mask=True, memory=6)


@pytest.mark.parametrize(
    "position", [name for name in kinds.names("nn/positions") if name not in ABSOLUTE]
)
@pytest.mark.parametrize("length", [6, 20])
@torch.no_grad()
def test_rows_with_memory_equal_one_long_row(position: str, length: int) -> None:
    """A memory of all earlier positions gives the states of one long row."""
    model, row = build("transformer", position), ids(2, 20)
    assert isinstance(model, TransformerBackbone)
    model.stack.memory_length = length
    expected = model(plain(row, CausalMask())).states
    memory, actual = None, []
    for part in row.split([5, 5, 1, 9], dim=1):
        hidden = model(replace(plain(part, CausalMask()), memory=memory))
        memory = hidden.memory
        assert memory is not None
        assert memory[0].shape[1] <= length
        actual.append(hidden.states)
    is_same = torch.allclose(torch.cat(actual, 1), expected, **CLOSE)
    assert is_same == (length == 20)
    torch.testing.assert_close(torch.cat(actual[:2], 1), expected[:, :10], **CLOSE)


@every_position
@torch.no_grad()
def test_queries_at_some_positions_equal_those_at_all(position: str) -> None:
    """Queries at some positions, in any order, get the states that queries at all positions get."""
    model = build("transformer", position, is_causal=False, two_streams=True)
    row, order = ids(2, 12), torch.randperm(12, generator=torch.Generator().manual_seed(2))
    order = order.expand(2, -1)
    first = torch.randn(2, 2, 5, 24, generator=torch.Generator().manual_seed(3)).unbind(1)

    def read(at: Tensor) -> Tensor:
        queries = Queries(at, PermutationMask(order, includes_self=False))
        batch = plain(row, PermutationMask(order)).with_part(queries)
        return model(replace(batch, memory=None if position in ABSOLUTE else first)).states

    every = read(torch.arange(12).expand(2, -1))
    some = torch.tensor([[7, 2, 9], [0, 11, 7]])
    torch.testing.assert_close(read(some), every[torch.arange(2)[:, None], some], **CLOSE)
