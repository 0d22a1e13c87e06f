"""Checkpoints: atomic, with checksums, safetensors and JSON only.

checkpoints/step-00001000/weights.safetensors    the model, each shared tensor once
                          keys-2.npy ...         counts of an n-gram model (`foreword.ngrams`)
                          optimizer.safetensors  its state, by parameter name
                          memory.safetensors     memory passed from row to row, if any
                          unaveraged.safetensors the weights to train further, if the model is
                                                 an average of them
                          state.json             step, budget spent, counters
                          manifest.json          version, sizes and checksums; written last
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from foreword import atomic, manifest, stored
from foreword.errors import DamagedError, UserError
from foreword.nn.model import Model
from foreword.nn.sharded import is_sharded, placed_like, set_values, whole
from foreword.train import processes
from foreword.train.finite import require_finite
from foreword.train.tensor_files import StoredTensor, opened, write_one_by_one

KIND, VERSION = "checkpoint", 1
# Needed only to resume.
TRAINING_STATE = ("optimizer.safetensors", "memory.safetensors", "unaveraged.safetensors")


def save(
    folder: Path,
    model: nn.Module,
    optimizer: Optimizer | None,
    state: Mapping[str, Any],
    memory: Sequence[tuple[Tensor, ...] | None] = (),
    unaveraged: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a checkpoint that appears under its name only when it is complete.

    Several processes call it together; the first writes, and the others send it their shards.

    Args:
        folder: the checkpoint.
        model: its weights are what readers of the checkpoint load.
        optimizer: of the training; None for a model that is not trained further.
        state: the counters, as JSON.
        memory: what each micro-batch left for the next step.
        unaveraged: the weights to train further, by parameter, if the model's are their average.

    Raises:
        NotFiniteError: a weight or the optimizer's state holds nan or infinity.
        UserError: the disk is full, the folder cannot be written, or the optimizer's state is not
            of tensors.
    """
    files: dict[str, dict[str, Tensor]] = {"weights": stored_tensors(model)}
    if optimizer is not None:
        files["optimizer"] = _optimizer_tensors(model, optimizer)
    if memory:
        files["memory"] = _memory_tensors(memory)
    if unaveraged:
        files["unaveraged"] = dict(unaveraged)
    for name, tensors in files.items():
        require_finite(tensors, name)
    if not processes.is_first():
        for tensors in files.values():
            for tensor in tensors.values():
                whole(tensor.detach())
        return
    with atomic.folder(folder) as part:
        for name, tensors in files.items():
            file = part / f"{name}.safetensors"
            if any(map(is_sharded, tensors.values())):
                write_one_by_one(file, tensors)
            else:
                save_file(_on_cpu(tensors), file)
        if isinstance(model, Model):
            model.backbone.save(part)
        (part / "state.json").write_text(stored.dumps(state), encoding="utf-8")
        manifest.write(part, KIND, VERSION)


def verify(folder: Path, *, with_training_state: bool = True) -> None:
    """Check every file against the manifest.

    Args:
        folder: the checkpoint.
        with_training_state: whether to verify also the files that only resuming needs (twice as
            large as the weights); otherwise only their sizes are checked.

    Raises:
        DamagedError: the checkpoint is damaged.
        UserError: it is of another version.
    """
    needed = ("weights.safetensors", "state.json")
    manifest.verify(folder, KIND, VERSION, needed, () if with_training_state else TRAINING_STATE)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return `stored_tensors` on the CPU."""
    return _on_cpu(stored_tensors(model))


def stored_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return every parameter and persistent buffer once, by the first of its names."""
    buffers = dict(model.named_buffers())
    kept = buffers.keys() & model.state_dict(keep_vars=True).keys() if buffers else ()
    return {**dict(model.named_parameters()), **{name: buffers[name] for name in sorted(kept)}}


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}


def load_weights(folder: Path, model: nn.Module) -> None:
    """Load the weights of a checkpoint into `model`.

    Raises:
        UserError: a tensor is missing, left over, or of another shape.
    """
    tensors = stored_tensors(model)
    with opened(folder / "weights.safetensors") as loaded:
        for name in sorted(tensors.keys() ^ loaded.keys()):
            where = "the checkpoint has no" if name in tensors else "the model has no"
            raise UserError(
                f"{folder}: {where} tensor {name}; the checkpoint belongs to another recipe"
            )
        for name, tensor in tensors.items():
            if tensor.shape != loaded[name].shape:
                raise UserError(
                    f"{folder}: {name} is {loaded[name].shape}, "
                    f"and the recipe says {tuple(tensor.shape)}"
                )
            set_values(tensor, loaded[name])
    if isinstance(model, Model):
        model.backbone.load(folder)


def _optimizer_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
    tensors = {
        f"{names[p]}/{key}": value
        for p, values in optimizer.state.items()
        for key, value in values.items()
        if value is not None
    }
    for path, value in tensors.items():
        if not isinstance(value, Tensor):
            raise UserError(
                f"optimizer: its state {path} is of type {type(value).__name__}, and a checkpoint "
                "holds tensors only; a resumed run would differ"
            )
    return tensors


def load_optimizer(folder: Path, model: nn.Module, optimizer: Optimizer) -> None:
    """Load the state of a checkpoint into an optimizer.

    A parameter without stored state, such as one that never had a gradient, begins anew.

    Raises:
        UserError: a state is of a parameter that the model lacks.
    """
    parameters = dict(model.named_parameters())
    with opened(folder / "optimizer.safetensors") as loaded:
        for path, values in loaded.items():
            name, _, key = path.rpartition("/")
            if name not in parameters:
                raise UserError(
                    f"{folder}: the optimizer's state {path} has no parameter in the model"
                )
            optimizer.state[parameters[name]][key] = _state_like(parameters[name], values)


def _state_like(parameter: Tensor, values: StoredTensor) -> Tensor:
    """Return a parameter's state where its optimizer keeps it."""
    if values.shape == parameter.shape:
        return placed_like(values, parameter)
    # A step count stays on the optimizer's device.
    is_count = not values.shape and not parameter.is_cuda
    return values[...] if is_count else values[...].to(parameter.device)


def _memory_tensors(memory: Sequence[tuple[Tensor, ...] | None]) -> dict[str, Tensor]:
    return {
        f"{micro_batch}/{number}": tensor
        for micro_batch, tensors in enumerate(memory)
        for number, tensor in enumerate(tensors or ())
    }


def load_memory(folder: Path, device: torch.device) -> tuple[tuple[Tensor, ...] | None, ...]:
    """Return the memory of each micro-batch; empty if the model keeps none."""
    file = folder / "memory.safetensors"
    if not file.is_file():
        return ()
    memory: dict[int, dict[int, Tensor]] = {}
    for name, tensor in load_file(file).items():
        micro_batch, _, number = name.partition("/")
        memory.setdefault(int(micro_batch), {})[int(number)] = tensor.to(device)
    return tuple(tuple(memory[m][n] for n in sorted(memory[m])) for m in sorted(memory))


def load_unaveraged(folder: Path) -> dict[str, Tensor]:
    """Return the weights to train further, by parameter; empty if the model is no average."""
    file = folder / "unaveraged.safetensors"
    return load_file(file) if file.is_file() else {}


def read_state(folder: Path) -> dict[str, Any]:
    """Return the checkpoint's `state.json`."""
    state = stored.read(folder / "state.json")
    return {key: value for key, value in state.items() if key != stored.CHECKSUM}


def all_in(run: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    folders = [p for p in (run / "checkpoints").glob("step-*") if p.is_dir()]
    return sorted(folders, key=lambda folder: _order(folder.name))


def name_of(step: int) -> str:
    """Return the name of a step's checkpoint: `step-00001000`."""
    return f"step-{step:08d}"


def _order(name: str) -> tuple[int, str]:
    """Return the key by which names of checkpoints sort by step, beyond eight digits too."""
    return len(name), name


def newest(run: Path, warn: list[str] | None = None, *, with_training_state: bool = True) -> Path:
    """Return the newest checkpoint of a run that is complete.

    Args:
        run: the run folder.
        warn: a line is appended for each damaged checkpoint that was skipped.
        with_training_state: as in `verify`.

    Raises:
        DamagedError: all checkpoints are damaged.
        UserError: there is none, or the newest is of another version (which is not damage).
    """
    damaged = []
    for folder in reversed(all_in(run)):
        try:
            verify(folder, with_training_state=with_training_state)
        except DamagedError as error:
            damaged.append(str(error))
            continue
        if warn is not None:
            warn.extend(f"{line}; the one before it is used" for line in damaged)
        return folder
    if damaged:
        raise DamagedError(damaged[0])
    raise UserError(f"{run}: holds no checkpoint")


def delete_after(run: Path, step: int) -> Path | None:
    """Delete the checkpoints after a step, and return the newest of the others.

    Nothing is deleted if there is no other.
    """
    checkpoints = all_in(run)
    good = [folder for folder in checkpoints if _order(folder.name) <= _order(name_of(step))]
    if good:
        for folder in checkpoints[len(good) :]:
            shutil.rmtree(folder)
    return good[-1] if good else None


def prune(run: Path, keep: int, best: str | None, last: str) -> None:
    """Delete all checkpoints up to `last` except the best and the last `keep`.

    A checkpoint of a later step is damaged, since a resumed run will write it again; it is not
    counted, so that complete ones are kept.
    """
    complete = [folder for folder in all_in(run) if _order(folder.name) <= _order(last)]
    for folder in complete[:-keep]:
        if folder.name != best:
            # Renamed first: a kill leaves no half checkpoint by its name.
            folder.replace(folder.with_name(f".{folder.name}.old"))
    for left in (run / "checkpoints").glob(".step-*"):  # renamed here, or before a kill
        shutil.rmtree(left, ignore_errors=True)
