"""The least memory of a run, counted without weights before anything is built."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from foreword.errors import UserError
from foreword.formatting import byte_size
from foreword.nn.init import shapes_only
from foreword.nn.model import Architecture
from foreword.nn.stack_settings import StackSettings
from foreword.runs.counted import row_bytes
from foreword.runs.dry_run import FEW_LAYERS, dummy_vocab, shallow
from foreword.runs.recipe import Recipe
from foreword.train.device import choose_device, choose_precision
from foreword.train.optimizers._contract import OptimizerSettings
from foreword.train.optimizers.muon import hidden_matrices
from foreword.types import Vocab

TOKEN_BYTES = 100  # per token of the vocabulary, in the tokenizer and in `Vocab`
POSITION_BYTES = 32  # ids, targets, documents and positions of a row, int64 each
MACHINES = 1_000  # like this one: a run too large for all of them is taken for a typing error
AHEAD = ("vocabulary", "rows")  # held before training begins
MOST_BYTES = 1 << 63  # maximum size of a tensor
CGROUP = Path("/sys/fs/cgroup/memory.max")

# What to reduce, by where most of the memory goes.
SMALLER = {
    "vocabulary": "a smaller tokenizer.vocab",
    "rows": "a smaller train.batch or packing.length",
    "activations": "a smaller packing.length or model",
}


def memory_of(device: torch.device) -> int:
    """Return the bytes of memory of the device; for a CPU, those that this process may use."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(available, int(CGROUP.read_text(encoding="ascii")))
    except (OSError, ValueError):  # no control group, or "max"
        return available


def require_memory(recipe: Recipe, vocab: Vocab | None = None, machines: int = 1) -> None:
    """Refuse a run that certainly needs more memory than there is, before anything is built.

    Args:
        recipe: recipe of the run.
        vocab: the vocabulary of its tokenizer, if it exists.
        machines: number of machines like this one that share the training.

    Raises:
        UserError: it needs more; the message names both sizes and what to reduce.
    """
    ahead = _ahead(recipe, recipe.tokenizer.vocab if vocab is None else vocab.size)
    # First without the layers, so that the count below stays fast.
    _require_fits(recipe, {**ahead, "attention": 4 * _attention_numbers(recipe.model)}, machines)
    try:
        numbers = sum(count_parameters(recipe, vocab).values())
    except OverflowError:
        numbers = MOST_BYTES // 4
    _require_fits(recipe, ahead | _training(recipe, numbers), machines)


def require_room_for_a_row(recipe: Recipe, vocab: Vocab | None = None, machines: int = 1) -> None:
    """Refuse a run that has no memory for a row besides; arguments as in `require_memory`.

    Raises:
        UserError: it needs more; the message names both sizes and what to reduce.
    """
    _require_fits(recipe, least_memory(recipe, vocab), machines)


def least_memory(recipe: Recipe, vocab: Vocab | None = None) -> dict[str, int]:
    """Return the least bytes of a run on one machine, by purpose, with one row at a time."""
    size = recipe.tokenizer.vocab if vocab is None else vocab.size
    training = _training(recipe, sum(count_parameters(recipe, vocab).values()))
    if not recipe.model.trains_offline:
        device = choose_device(recipe.train.device, "train.device")
        dtype = choose_precision(recipe.train.precision, device)
        training["activations"] = row_bytes(recipe, dtype)
    return _ahead(recipe, size) | training


def fits(recipe: Recipe, vocab: Vocab) -> bool:
    """Return whether the run may fit in memory."""
    try:
        require_memory(recipe, vocab)
    except UserError:
        return False
    return True


def _require_fits(recipe: Recipe, components: Mapping[str, int], machines: int) -> None:
    """Raise a UserError if a run needs more bytes than there are; those ahead on each machine."""
    available = memory_of(choose_device(recipe.train.device, "train.device"))
    has = f"there is {byte_size(available)}"
    ahead = {name: components[name] for name in AHEAD}
    if sum(ahead.values()) > available:
        components = ahead
    elif sum(components.values()) <= available * machines:
        return
    elif machines > 1:
        has = f"{machines:,} machines like this one have {byte_size(available * machines)}"
    needed = sum(components.values())
    falling = sorted(components.items(), key=lambda part: -part[1])
    listed = ", ".join(
        f"{part} {byte_size(count)}" for part, count in falling if 50 * count > needed
    )
    raise UserError(
        f"the run needs at least {byte_size(needed)} of memory ({listed}), and {has}; "
        f"set {SMALLER.get(falling[0][0], 'a smaller model')}"
    )


def _ahead(recipe: Recipe, vocab: int) -> dict[str, int]:
    """Return the bytes of text and tokenizer held at once: all rows of a step are made ahead."""
    is_offline = recipe.model.trains_offline
    rows = 0 if is_offline else recipe.rows_per_step * recipe.packing.length * POSITION_BYTES
    return dict(zip(AHEAD, (vocab * TOKEN_BYTES, rows), strict=True))


def _training(recipe: Recipe, numbers: int) -> dict[str, int]:
    """Return the bytes of training with this many parameters, by purpose, without its rows."""
    weights, model = 4 * numbers, recipe.model
    if model.trains_offline:
        return {"weights": weights}
    return {
        "weights": weights,
        "gradients": weights,
        "optimizer": weights * min(state_per_weight(recipe.optimizer)),
        **({"average": weights} if recipe.train.average else {}),
    }


def _attention_numbers(model: Architecture) -> int:
    """Return the number of parameters of one layer's attention; 0 without attention."""
    if not isinstance(model, StackSettings):
        return 0
    return (4 * model.d_model + 2 * model.attention_prefix) * model.heads * model.head_width


@functools.cache
def state_per_weight(optimizer: OptimizerSettings) -> tuple[int, int]:
    """Return how many numbers an optimizer keeps per weight, measured by a step.

    Returns:
        The count for matrices that map states to states, and the one for all other weights, which
        Muon leaves to AdamW.
    """
    matrix, table = nn.Linear(64, 64, bias=False), nn.Embedding(64, 64)
    for module in (matrix, table):
        module.weight.grad = torch.zeros_like(module.weight)
    torch_optimizer = optimizer.build(nn.Sequential(matrix, table))
    torch_optimizer.step()

    def per_weight(weight: Tensor) -> int:
        numbers: int = sum(
            v.numel() for v in torch_optimizer.state[weight].values() if v is not None
        )
        return numbers // weight.numel()

    return per_weight(matrix.weight), per_weight(table.weight)


def state_numbers(optimizer: OptimizerSettings, model: nn.Module) -> int:
    """Return how many numbers an optimizer keeps for the weights of a model."""
    of_matrix, of_other = state_per_weight(optimizer)
    matrices = sum(p.numel() for p in set(hidden_matrices(model)))
    return of_matrix * matrices + of_other * (sum(p.numel() for p in model.parameters()) - matrices)


def count_state(recipe: Recipe, vocab: Vocab | None = None) -> int:
    """Return `state_numbers` of a recipe, of which few layers are built, without weights.

    Raises:
        OverflowError: as `count_parameters`.
        UserError: as `count_parameters`.
    """

    state_per_weight(recipe.optimizer)  # with numbers, which the context below has not

    def counted(model: nn.Module) -> dict[str, int]:
        return {"state": state_numbers(recipe.optimizer, model)}

    return _counts_of_layers(recipe, vocab, counted)["state"]


def count_parameters(recipe: Recipe, vocab: Vocab | None = None) -> dict[str, int]:
    """Return the parameters by part of the model, of which few layers are built, without weights.

    Raises:
        OverflowError: a tensor is too large to be addressed.
        UserError: parts of the recipe do not fit.
    """
    return _counts_of_layers(recipe, vocab, count_by_part)


def _counts_of_layers(
    recipe: Recipe, vocab: Vocab | None, counted: Callable[[nn.Module], dict[str, int]]
) -> dict[str, int]:
    """Return counts of a model, of which few layers are built, without weights."""
    vocab = vocab or dummy_vocab(recipe.tokenizer)
    few, deep = shallow(recipe)
    first = _count(few, vocab, counted)
    counts = dict(first)
    for name, layers in deep.items():
        deeper: Any = replace(few.model, **{name: 2 * FEW_LAYERS})
        more = _count(replace(few, model=deeper), vocab, counted)
        for part in counts:
            counts[part] += (layers - FEW_LAYERS) * (more[part] - first[part]) // FEW_LAYERS
    return counts


def _count(
    recipe: Recipe, vocab: Vocab, counted: Callable[[nn.Module], dict[str, int]]
) -> dict[str, int]:
    try:
        with shapes_only():
            return counted(recipe.build(vocab))
    except (RuntimeError, TypeError) as error:
        if "overflow" not in str(error).lower():
            raise
        raise OverflowError(str(error)) from error


def count_by_part(model: nn.Module) -> dict[str, int]:
    """Return the parameters of embedding, stacks and heads; shared ones count once."""
    backbone, heads = model.get_submodule("backbone"), model.get_submodule("heads")
    seen: set[nn.Parameter] = set()
    counts: dict[str, int] = {}
    parts = [*backbone.named_children(), ("heads", heads)]
    parts += [("heads", child) for name, child in model.named_children() if name == "stage_heads"]
    for name, part in parts:
        new = set(part.parameters()) - seen
        counts[name] = counts.get(name, 0) + sum(p.numel() for p in new)
        seen |= new
    return counts
