"""Reading a folder's weights strictly and converting them both ways: no tensor is ignored."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from foreword.errors import UserError
from foreword.interop.files import INDEX, WEIGHTS, with_weights
from foreword.interop.hf._contract import Design, Family, TensorMaps
from foreword.settings import kinds
from foreword.types import Vocab


def read(folder: Path, family: Family) -> dict[str, Tensor]:
    """Return every tensor in the folder, by the names that the family's maps use.

    Raises:
        UserError: a file is missing, truncated, or a pickle, or there are other weights.
    """
    stored: dict[str, Tensor] = {}
    for file, indexed in with_weights(folder).items():
        tensors = _read_file(folder / file)
        for name in sorted(indexed - tensors.keys()):
            raise UserError(f"{folder / INDEX}: lists {name} in {file}, which does not hold it")
        stored |= tensors
    renamed = {_modern(name): tensor for name, tensor in stored.items()}
    prefix = family.names.prefix
    if prefix and not any(name.startswith(prefix) for name in renamed):
        renamed = {prefix + name: tensor for name, tensor in renamed.items()}
    return {
        name: tensor for name, tensor in renamed.items() if not _matches(name, family.names.buffers)
    }


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _read_file(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        raise UserError(f"{file}: is missing")
    try:
        with safe_open(file, framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except Exception as error:  # safetensors has an error of its own
        if "SafetensorError" not in type(error).__name__:
            raise
        raise UserError(f"{file}: damaged or cut short: {error}") from error


def _modern(name: str) -> str:
    """Replace TensorFlow's names of a LayerNorm's parameters, which the oldest files use."""
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(f"LayerNorm{old}"):
            return name.removesuffix(old) + new
    return name


def fill(
    model: nn.Module,
    design: Design,
    vocab: Vocab,
    family: Family,
    weights: Mapping[str, Tensor],
) -> list[str]:
    """Fill `model` from their weights, in float32.

    Returns:
        The names of dropped tensors, of heads that are not imported.

    Raises:
        UserError: a tensor is missing, has another shape than `config.json` implies, is not
            finite, or has no counterpart.
    """
    remaining = dict(weights)
    ours = dict(model.named_parameters())
    tensors = family.tensors(design, vocab)
    with torch.no_grad():
        for parameter_map in tensors.maps:
            parameters = [ours.pop(name) for name in parameter_map.ours]
            expected = parameter_map.to_hf(p.detach() for p in parameters)
            theirs = [
                _take(remaining, name, tuple(like.shape))
                for name, like in zip(parameter_map.theirs, expected, strict=True)
            ]
            parts = parameter_map.from_hf(theirs, [len(p) for p in parameters])
            for parameter, part in zip(parameters, parts, strict=True):
                parameter.copy_(part)
    assert not ours, f"not filled: {sorted(ours)}"
    return _require_none_left(remaining, tensors, family, weights)


def _take(remaining: dict[str, Tensor], name: str, shape: tuple[int, ...]) -> Tensor:
    tensor = remaining.pop(name, None)
    if tensor is None:
        raise UserError(f"{WEIGHTS}: has no tensor {name}, which config.json requires")
    if tuple(tensor.shape) != shape:
        raise UserError(
            f"{WEIGHTS}: {name} is {tuple(tensor.shape)}, but config.json implies {shape}"
        )
    if not tensor.is_floating_point():
        raise UserError(f"{WEIGHTS}: {name} is of {tensor.dtype}, which is not supported")
    weight = tensor.float()
    if not weight.isfinite().all():
        raise UserError(
            f"{WEIGHTS}: {name} holds numbers that are not finite (NaN or infinity), so the model "
            "predicts nothing; use a file from before its training went wrong"
        )
    return weight


def _require_none_left(
    remaining: dict[str, Tensor], tensors: TensorMaps, family: Family, weights: Mapping[str, Tensor]
) -> list[str]:
    # Tied tensors, copies and zeros that only their files hold.
    for name, original in tensors.tied.items():
        copy = remaining.pop(name, None)
        if copy is not None and not torch.equal(copy, weights[original]):
            raise UserError(f"{WEIGHTS}: {name} should equal {original} and does not")
    for name, original in tensors.copies.items():
        if name in remaining and torch.equal(remaining[name], weights[original]):
            del remaining[name]
    for name in tensors.zeros:
        if remaining.pop(name, torch.zeros(1)).any():
            raise UserError(f"{WEIGHTS}: {name} should be 0 and is not")
    # Heads that are not imported; anything else is refused.
    dropped = [name for name in remaining if _matches(name, family.names.dropped)]
    if names := sorted(remaining.keys() - set(dropped)):
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise UserError(
            f"{WEIGHTS}: holds {', '.join(names[:3])}{more}, for which Foreword's "
            f"{kinds.name_of(family)} has no counterpart; nothing is dropped silently"
        )
    return sorted(dropped)


def to_hf(
    model: nn.Module, design: Design, vocab: Vocab, family: Family, prefix: str = ""
) -> dict[str, Tensor]:
    """Return their weights, converted from our model's parameters whose names have the prefix."""
    ours = {name: p.detach().cpu() for name, p in model.named_parameters()}
    weights: dict[str, Tensor] = {}
    tensors = family.tensors(design, vocab)
    for parameter_map in tensors.maps:
        if not parameter_map.ours[0].startswith(prefix):
            continue
        theirs = parameter_map.to_hf(ours[name] for name in parameter_map.ours)
        weights |= dict(zip(parameter_map.theirs, theirs, strict=True))
    weights |= {name: weights[original].clone() for name, original in tensors.copies.items()}
    return weights | {name: torch.zeros(shape) for name, shape in tensors.zeros.items()}


def unmatched(model: nn.Module, design: Design, vocab: Vocab, family: Family) -> list[str]:
    """Return why the family cannot hold the model's parameters, one phrase each."""
    ours = {name for name, _ in model.named_parameters()}
    mapped: set[Any] = {
        name for parameter_map in family.tensors(design, vocab).maps for name in parameter_map.ours
    }
    lacking = [f"the model has no {name}" for name in sorted(mapped - ours)]
    return lacking + [f"there is no counterpart of {name}" for name in sorted(ours - mapped)]
