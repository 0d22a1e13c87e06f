"""Muon against torch's own optimizers, each on its own parameters."""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import nn

from foreword.errors import UserError
from foreword.runs.recipe import load_recipe
from foreword.train.optimizers import muon
from foreword.train.optimizers.adamw import AdamW
from foreword.train.optimizers.muon import (
    Muon,
    best_on,
    hidden_matrices,
    orthogonalise,
    orthogonalise_together,
)
from tests.tiny import build


def test_matrices_are_updated_by_muon_and_the_rest_by_adamw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bit for bit as by torch, where both compute in bfloat16."""
    monkeypatch.setattr(muon, "choose_precision", lambda name, device: torch.bfloat16)
    ours, theirs = _both(lr=0.02)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(p, q)


def test_without_bfloat16_the_update_is_the_same_more_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(muon, "choose_precision", lambda name, device: torch.float32)
    ours, theirs = _both(lr=0.02)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(p, q, rtol=0, atol=1e-3)  # of updates of about 4 * 0.02 * 0.2


def _both(lr: float) -> tuple[nn.Module, nn.Module]:
    """Return a model after four steps of our optimizer, and its copy after torch's two."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(7, 6), nn.LayerNorm(6), nn.Linear(6, 4))
    other = copy.deepcopy(model)
    ours = Muon(lr=lr, decay=0.1).build(model)
    matrix = other[2].weight
    assert isinstance(matrix, nn.Parameter)
    by_torch = torch.optim.Muon(
        [matrix], lr=lr, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    matrix.requires_grad_(False)
    adamw = AdamW(lr, 0.9, 0.98, 1e-8, 0.1).build(other)
    matrix.requires_grad_(True)
    for step in range(4):
        ids = torch.randint(0, 7, (5,), generator=torch.Generator().manual_seed(step))
        for one, optimizers in ((model, [ours]), (other, [by_torch, adamw])):
            one.zero_grad()
            one(ids).square().sum().backward()
            for optimizer in optimizers:
                optimizer.step()
    return model, other


@pytest.mark.parametrize("shape", [(24, 8), (8, 24), (16, 16)])
def test_orthogonal_matrices_have_the_directions_of_the_singular_vectors(
    shape: tuple[int, int],
) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1)).double()
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    inside = torch.diag(u.T @ orthogonalise(matrix, 5) @ v.T)
    assert torch.allclose(u @ torch.diag(inside) @ v, orthogonalise(matrix, 5))
    assert ((inside > 0.6) & (inside < 1.25))[s > 0.05 * s.norm()].all()


@pytest.mark.parametrize("shape", [(24, 8), (8, 24), (16, 16)])
@pytest.mark.parametrize(("iterations", "least"), [(3, 0.01), (4, 0.0025), (5, 0.0006)])
def test_minimax_polynomials_are_near_the_polar_factor(
    shape: tuple[int, int], iterations: int, least: float
) -> None:
    """From singular values of `least` of the first scale, as by torch's decomposition."""
    matrices = torch.randn((2, *shape), generator=torch.Generator().manual_seed(1)).double()
    u, s, v = torch.linalg.svd(matrices, full_matrices=False)
    found = orthogonalise_together(matrices, iterations)
    inside = torch.diagonal(u.mT @ found @ v.mT, dim1=1, dim2=2)
    assert torch.allclose(u * inside[:, None] @ v, found)
    is_reached = s > least * s.pow(4).sum(1, keepdim=True) ** 0.25
    assert ((inside - 1).abs() < 0.3001)[is_reached].all() and (inside > 0).all()
    one = orthogonalise_together(matrices[:1] * 1e-6, iterations)
    assert torch.allclose(one, found[:1])
    low = orthogonalise_together(matrices.bfloat16(), iterations).double()
    assert (torch.linalg.svdvals(low) < 1.35).all()


@pytest.mark.parametrize("low", [0.003, 0.1, 0.6])
def test_each_polynomial_is_the_best_of_its_degree(low: float) -> None:
    """The least of the greatest errors on many points, as a linear programme."""
    x = np.geomspace(low, 1, 2000)
    terms = np.stack([x, x**3, x**5], axis=1)
    bound = -np.ones((len(x), 1))
    found = linprog(
        [0, 0, 0, 1],
        np.block([[terms, bound], [-terms, bound]]),
        np.concatenate([np.ones(len(x)), -np.ones(len(x))]),
        bounds=[(None, None)] * 3 + [(0, None)],
    )
    polynomial, error = best_on(low)
    assert error == pytest.approx(found.x[3], rel=1e-3)
    assert polynomial == pytest.approx(found.x[:3], rel=1e-2)


def test_matrices_of_one_shape_move_together_as_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    together, counts = muon.orthogonalise_together, []

    def noted(matrices: torch.Tensor, iterations: int) -> torch.Tensor:
        counts.append(matrices.shape[:-2].numel())
        return together(matrices, iterations)

    monkeypatch.setattr(muon, "orthogonalise_together", noted)
    models = [build(load_recipe("modern_decoder_tiny")) for _ in range(2)]
    for model, is_batched in zip(models, (False, True), strict=True):
        monkeypatch.setattr(muon, "BATCHED_ON", "cpu" if is_batched else "cuda")
        optimizer = Muon(lr=0.02, polynomials="minimax", iterations=3).build(
            model, {hidden_matrices(model)[0]: 0.5}
        )
        for parameter in model.parameters():
            parameter.grad = torch.sin(torch.arange(parameter.numel())).view_as(parameter)
        optimizer.step()
    assert counts[:10] == [1] * 10 and sorted(counts[10:]) == [2, 2, 2, 4]
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(p, q, atol=1e-3, rtol=0.0)


@pytest.mark.parametrize(("has_bf16", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_products_are_in_the_dtype_that_the_processor_is_fast_in(
    has_bf16: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has_bf16)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    seen = []
    plain = muon.orthogonalise

    def noted(matrix: torch.Tensor, iterations: int) -> torch.Tensor:
        seen.append(matrix.dtype)
        return plain(matrix, iterations)

    monkeypatch.setattr(muon, "orthogonalise", noted)
    _both(lr=0.02)
    assert set(seen) == {dtype}


def test_embeddings_and_output_layers_are_updated_by_adamw() -> None:
    for recipe in ("gpt2_tiny", "lstm_tiny", "xlnet_tiny", "t5_tiny"):
        model = build(load_recipe(recipe, ["model.tied=false"]))
        names = {p: name for name, p in model.named_parameters()}
        hidden = {names[p] for p in hidden_matrices(model)}
        assert hidden
        assert not any("embedding" in name or name == "heads.token.weight" for name in hidden)
        assert not any("table" in name for name in hidden)


@pytest.mark.full
def test_a_step_does_not_depend_on_the_number_of_threads() -> None:
    cores = torch.get_num_threads()
    models = [build(load_recipe("modern_decoder_tiny")) for _ in range(2)]
    try:
        for model, threads in zip(models, (1, 2), strict=True):
            torch.set_num_threads(threads)
            optimizer = Muon(lr=0.02).build(model)
            for parameter in model.parameters():
                parameter.grad = torch.sin(torch.arange(parameter.numel())).view_as(parameter)
            optimizer.step()
    finally:
        torch.set_num_threads(cores)
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(p, q)


def test_more_iterations_than_torch_takes_are_refused() -> None:
    with pytest.raises(UserError, match="iterations"):
        Muon(iterations=100)


@pytest.mark.parametrize(("are_shards", "expected"), [(False, 2), (True, 1)])
def test_threads_share_the_matrices_unless_processes_do(
    are_shards: bool, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two would gather shards in another order than other processes, and wait for ever."""
    monkeypatch.setattr(muon, "is_sharded", lambda tensor: are_shards)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    both = threading.Barrier(expected, timeout=60)
    threads = set()

    def noted(matrix: torch.Tensor, iterations: int) -> torch.Tensor:
        if threading.current_thread() not in threads:
            threads.add(threading.current_thread())
            both.wait()
        return matrix

    monkeypatch.setattr(muon, "orthogonalise", noted)
    model = build(load_recipe("gpt2_tiny"))
    optimizer = Muon().build(model)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert len(threads) == expected
    assert (threading.main_thread() in threads) == are_shards
