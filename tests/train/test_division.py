"""A model that is divided among processes has the weights of one process, and never all of them."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from foreword.errors import UserError
from foreword.nn.block import Block
from foreword.nn.init import without_weights
from foreword.nn.model import ModelSettings
from foreword.nn.sharded import distributed_like, is_sharded, local_part, local_rows
from foreword.runs import gathered_model as gathered_models
from foreword.runs.dry_run import dummy_example, dummy_vocab
from foreword.runs.recipe import load_recipe
from foreword.runs.setup import TrainingSetup, build_model
from foreword.runs.sizes import least_memory
from foreword.train import checkpoint
from foreword.train.device import autocast
from foreword.train.optimizers.muon import Muon
from foreword.train.parallel._contract import TrainingDivision
from foreword.train.parallel.fsdp import FSDP
from foreword.train.parallel.hsdp import HSDP
from tests.held import Held
from tests.tiny import TRAINED, vocab

CPU = torch.device("cpu")


@contextmanager
def process(rank: int, count: int) -> Iterator[None]:
    """Be one of several processes, which do not exist."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=count)
    try:
        yield
    finally:
        distributed.destroy_process_group()


def require_rows_of(divided: nn.Module, alone: nn.Module) -> None:
    """Check that a divided model holds rows of the other's tensors, bit for bit."""
    expected = checkpoint.stored_tensors(alone)
    tensors = checkpoint.stored_tensors(divided)
    assert tensors.keys() == expected.keys()
    assert any(map(is_sharded, tensors.values()))
    for name, tensor in tensors.items():
        assert torch.equal(local_part(tensor), expected[name][local_rows(tensor)]), name
    for one, other in zip(divided.buffers(), alone.buffers(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.product(few=4)
@pytest.mark.parametrize("name", TRAINED)
def test_a_divided_model_begins_with_the_weights_of_one_process(name: str) -> None:
    recipe = load_recipe(name)
    words = vocab(recipe.tokenizer.vocab)
    alone = build_model(recipe, words, CPU)
    with process(1, 3):
        require_rows_of(build_model(recipe, words, CPU, FSDP()), alone)


def test_every_scheme_of_first_weights_is_the_same_in_groups_of_shards() -> None:
    with process(3, 4):
        for init in typing.get_args(typing.get_type_hints(ModelSettings)["init"]):
            recipe = load_recipe("t5_tiny")
            settings = {"init": init, "zero_init_residual": True, "attention_prefix": 3}
            model: Any = replace(recipe.model, **settings)
            recipe, words = replace(recipe, model=model), vocab(200)
            alone = build_model(recipe, words, CPU)
            require_rows_of(build_model(recipe, words, CPU, HSDP(group=2)), alone)


@pytest.mark.parametrize("name", ["bert_tiny", "t5_tiny", "electra_tiny"])
def test_a_process_never_holds_more_than_its_share_and_one_parameter(
    name: str, tmp_path: Path
) -> None:
    recipe, count = load_recipe(name), 4
    words = vocab(recipe.tokenizer.vocab)
    with Held() as alone:
        whole = build_model(recipe, words, CPU)
    sizes = [tensor.nbytes for tensor in whole.parameters()]
    assert alone.most >= sum(sizes)
    checkpoint.save(tmp_path / "step", whole.model, None, {})
    with process(0, count):
        with Held() as held:
            divided = build_model(recipe, words, CPU, FSDP())
            checkpoint.load_weights(tmp_path / "step", divided.model)
        require_rows_of(divided, whole)
    assert held.most < 1.1 * sum(sizes) / count + max(sizes)


def test_weights_gathered_in_bf16_are_dropped_until_the_backward_pass() -> None:
    settings = ["packing.length=8", "tokenizer.vocab=400", "train.precision=bf16"]
    recipe = load_recipe("gpt2_tiny", [*settings, "model.layers=3"])
    words = dummy_vocab(recipe.tokenizer)
    batch = recipe.layout.arrange(dummy_example(recipe, words, 1), words).to("cpu")
    with process(0, 2):
        divided = build_model(recipe, words, CPU, FSDP())
        saved: dict[int, torch.UntypedStorage] = {}

        def keep(tensor: Tensor) -> Tensor:
            saved[tensor.untyped_storage()._cdata] = tensor.untyped_storage()
            return tensor.detach()

        with saved_tensors_hooks(keep, lambda tensor: tensor), autocast(CPU, torch.bfloat16):
            loss = divided(batch)
        kept = sum(storage.nbytes() for storage in saved.values())
        loss.total.backward()
    block = next(one for one in divided.modules() if isinstance(one, Block))
    assert kept < 2 * sum(weight.numel() for weight in block.parameters())
    assert {weight.grad.dtype for weight in block.parameters()} == {torch.float32}


def test_a_module_that_sets_its_own_first_weights_is_not_divided() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.full((4,), 2.0))

    with pytest.raises(UserError, match=r"Scale sets the .* its factor itself"), without_weights():
        Scale()


def test_a_kind_that_chooses_has_nothing_to_wrap() -> None:
    from foreword.train.parallel.auto import Auto

    assert not isinstance(Auto(), TrainingDivision)
    assert isinstance(Auto().choose(1, 2), TrainingDivision)


@pytest.mark.parametrize("count", [1, 3])
def test_muon_makes_a_divided_matrix_orthogonal_as_a_whole(count: int) -> None:
    alone, divided = (nn.Linear(16, 2, bias=False) for _ in range(2))
    divided.load_state_dict(alone.state_dict())
    with process(0, count):
        mesh = init_device_mesh("cpu", (count,))
        fully_shard(divided, mesh=mesh)
        for layer in (alone, divided):
            optimizer = Muon(lr=0.1, decay=0.1).build(layer)
            for n in range(2):
                values = torch.sin(torch.arange(32.0) + n).view(2, 16)
                layer.weight.grad = distributed_like(values, layer.weight)
                optimizer.step()
        mean = optimizer.state[divided.weight]["momentum_buffer"]
        assert len(local_part(mean)) == -(-2 // count)
        if count == 1:  # the rows of others do not exist
            torch.testing.assert_close(local_part(divided.weight), alone.weight)


def test_a_model_is_gathered_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, words = load_recipe("bert_tiny"), vocab(1000)
    with process(0, 4):
        divided = build_model(recipe, words, CPU, FSDP())
        nothing: Any = None
        setup = TrainingSetup(
            recipe, nothing, words, divided.model, nothing, None, CPU, torch.float32, (), divided
        )
        weights = 4 * divided.model.count_parameters()
        needed = sum(least_memory(recipe, words).values()) // 4 + weights
        rooms = {}
        for bytes_of_process in (0, needed, 2 * needed):
            monkeypatch.setattr(
                gathered_models, "memory_of", lambda _, own=bytes_of_process: 4 * own
            )
            rooms[bytes_of_process // needed] = gathered_models.gathered_model(setup)
    assert (rooms[0], rooms[1]) == (None, None)
    assert rooms[2] is not None
    assert rooms[2].device == CPU
