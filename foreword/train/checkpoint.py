"""Checkpoints: atomic, with checksums, safetensors and JSON only.

checkpoints/step-00001000/weights.safetensors    the model, each shared tensor once
                          keys-2.npy ...         counts of an n-gram model (`foreword.ngrams`)
                          optimizer.safetensors  its state, by parameter name
                          memory.safetensors     memory passed from row to row, if any
                          unaveraged.safetensors the weights to train further, if the model is
                                                 an average of them
                          state.json             step, budget spent, counters
                          manifest.json          version, sizes and checksums; written last

Of a sharded model each process writes its rows: weights-1-of-4.safetensors, and so on.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from foreword.disk import atomic, manifest, stored
from foreword.errors import DamagedError, UserError
from foreword.nn.model import Model
from foreword.nn.sharded import (
    Share,
    distributed_like,
    is_sharded,
    local_part,
    local_share,
    set_values,
)
from foreword.train import processes, tensor_files
from foreword.train.finite import require_finite
from foreword.train.tensor_files import StoredTensor, opened

KIND, VERSION = "checkpoint", 1
TRAINING_STATE = ("optimizer", "memory", "unaveraged")  # groups that only resuming needs
ALL = Share(0, 1, is_copy=False)


@dataclass(frozen=True)
class Contents:
    """What this process writes of a checkpoint.

    Attributes:
        files: tensors by file.
        share: which part of a sharded model it holds; the first process has the first.
        state: the counters, as JSON.
        model: what is saved; its backbone may write files of its own.
    """

    files: Mapping[str, Mapping[str, Tensor]]
    share: Share
    state: Mapping[str, Any]
    model: nn.Module

    @property
    def is_on_cpu(self) -> bool:
        """Whether all tensors are in the CPU's memory."""
        tensors = (tensor for file in self.files.values() for tensor in file.values())
        return all(tensor.device.type == "cpu" for tensor in tensors)

    def copied(self) -> Contents:
        """Return the same contents in the CPU's memory, whatever becomes of the tensors."""
        files = {
            file: {
                name: torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)
                for name, tensor in tensors.items()
            }
            for file, tensors in self.files.items()
        }
        return replace(self, files=files)

    def write(
        self, part: Path, before_each: Callable[[], None] = lambda: None
    ) -> dict[str, dict[str, Any]]:
        """Write the files, and return their sizes and checksums.

        Args:
            part: the folder.
            before_each: called before each tensor; it may raise an error to end the writing.
        """
        return {
            file: tensor_files.write(part / file, tensors, before_each)
            for file, tensors in self.files.items()
        }


def contents_of(
    model: nn.Module,
    optimizer: Optimizer | None,
    state: Mapping[str, Any],
    memory: Sequence[tuple[Tensor, ...] | None] = (),
    unaveraged: Mapping[str, Tensor] | None = None,
) -> Contents:
    """Return what this process writes of a checkpoint, in the tensors of the training.

    Several processes call it together. Each writes its part of a sharded model, and the first all
    that is not sharded.

    Args:
        model: its weights are what readers of the checkpoint load.
        optimizer: the optimizer of the training; None for a model that is not trained further.
        state: the counters, as JSON.
        memory: what each micro-batch left for the next step.
        unaveraged: the weights to train further, by parameter, if the model's are their average.

    Raises:
        NotFiniteError: a weight or the optimizer's state holds nan or infinity.
        UserError: the optimizer's state is not of tensors.
    """
    groups: dict[str, dict[str, Tensor]] = {"weights": stored_tensors(model)}
    if optimizer is not None:
        groups["optimizer"] = _optimizer_tensors(model, optimizer)
    if memory:
        groups["memory"] = _memory_tensors(memory)
    if unaveraged:
        groups["unaveraged"] = dict(unaveraged)
    files, share = {}, Share(0, 1, is_copy=not processes.is_first())
    for name, tensors in groups.items():
        require_finite(tensors, name)
        sharded = {key for key, tensor in tensors.items() if is_sharded(tensor)}
        if sharded:
            share = local_share(tensors[next(iter(sharded))])
        is_first = not share.number and not share.is_copy
        if is_first or (sharded and not share.is_copy):
            part = tensors if is_first else {key: tensors[key] for key in tensors if key in sharded}
            number, count = (share.number, share.count) if sharded else (0, 1)
            file = tensor_files.name_of(name, number, count)
            files[file] = {key: local_part(tensor.detach()) for key, tensor in part.items()}
    return Contents(files, share, state, model)


def save(
    folder: Path,
    model: nn.Module,
    optimizer: Optimizer | None,
    state: Mapping[str, Any],
    memory: Sequence[tuple[Tensor, ...] | None] = (),
    unaveraged: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a checkpoint that this process holds whole; see `contents_of` and `publish`."""
    publish(folder, contents_of(model, optimizer, state, memory, unaveraged))


def publish(
    folder: Path,
    contents: Contents,
    before_each: Callable[[], None] = lambda: None,
    others: Others | None = None,
) -> None:
    """Write a checkpoint that appears under its name only when it is complete.

    Args:
        folder: the checkpoint.
        contents: what this process, the first, writes of it.
        before_each: called before each tensor; it may raise an error to end the writing.
        others: the processes that write the rest of it.

    Raises:
        UserError: the disk is full, or the folder cannot be written.
    """
    with atomic.folder(folder) as part:
        if others is not None:
            others.begin()
        files = contents.write(part, before_each)
        if isinstance(contents.model, Model):
            contents.model.backbone.save(part)
        (part / "state.json").write_text(stored.dumps(contents.state), encoding="utf-8")
        if others is not None:
            files |= others.finished()
        manifest.write(part, KIND, VERSION, known=files)


class Others(Protocol):
    """The processes that write files of the same checkpoint."""

    def begin(self) -> None:
        """Tell them that the folder exists."""

    def finished(self) -> dict[str, dict[str, Any]]:
        """Wait until they have written; return sizes and checksums of their files."""


def is_training_state(file: str) -> bool:
    """Return whether only resuming needs a file of a checkpoint."""
    return tensor_files.group_of(file) in TRAINING_STATE


def verify(
    folder: Path,
    *,
    with_training_state: bool = True,
    share: Share = ALL,
) -> None:
    """Check every file against the manifest.

    Args:
        folder: the checkpoint.
        with_training_state: whether to verify also the files that only resuming needs (twice as
            large as the weights); otherwise only their sizes are checked.
        share: the files to verify, counted by name; of all others only the sizes are checked.

    Raises:
        DamagedError: the checkpoint is damaged.
        UserError: it is of another version.
    """
    needed = ("state.json", *tensor_files.names_in(folder, "weights"))
    names = sorted(path.name for path in folder.iterdir())
    unread = {name for n, name in enumerate(names) if n % share.count != share.number}
    if not with_training_state:
        unread |= set(filter(is_training_state, names))
    manifest.verify(folder, KIND, VERSION, needed, unread)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return `stored_tensors` on the CPU."""
    return _on_cpu(stored_tensors(model))


def stored_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return every parameter and persistent buffer once, by the first of its names."""
    buffers = dict(model.named_buffers())
    persistent = buffers.keys() & model.state_dict(keep_vars=True).keys() if buffers else ()
    return {
        **dict(model.named_parameters()),
        **{name: buffers[name] for name in sorted(persistent)},
    }


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}


def load_weights(folder: Path, model: nn.Module) -> None:
    """Load the weights of a checkpoint into `model`.

    Raises:
        UserError: a tensor is missing, left over, or of another shape.
    """
    tensors = stored_tensors(model)
    with opened(folder, "weights") as loaded:
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
    with opened(folder, "optimizer") as loaded:
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
        return distributed_like(values, parameter)
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
    if not (folder / tensor_files.name_of("memory")).is_file():
        return ()
    memory: dict[int, dict[int, Tensor]] = {}
    with opened(folder, "memory") as loaded:
        for name, values in loaded.items():
            micro_batch, _, number = name.partition("/")
            memory.setdefault(int(micro_batch), {})[int(number)] = values[...].to(device)
    return tuple(tuple(memory[m][n] for n in sorted(memory[m])) for m in sorted(memory))


def load_unaveraged(folder: Path, model: nn.Module) -> dict[str, Tensor]:
    """Return the weights to train further, placed like the model's; none without an average."""
    if not (folder / tensor_files.names_in(folder, "unaveraged")[0]).is_file():
        return {}
    parameters = dict(model.named_parameters())
    with opened(folder, "unaveraged") as loaded:
        return {name: distributed_like(values, parameters[name]) for name, values in loaded.items()}


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


def newest(
    run: Path,
    warn: list[str] | None = None,
    *,
    with_training_state: bool = True,
    together: bool = False,
) -> Path:
    """Return the newest checkpoint of a run that is complete.

    Args:
        run: the run folder.
        warn: a line is appended for each damaged checkpoint that was skipped.
        with_training_state: as in `verify`.
        together: whether all processes of a training ask, and divide the files among them.

    Raises:
        DamagedError: all checkpoints are damaged.
        UserError: there is none, or the newest is of another version (which is not damage).
    """
    share = Share(processes.rank(), processes.count(), is_copy=False) if together else ALL
    damaged, folders = [], all_in(run)
    for folder in reversed(folders):
        damage = ""
        try:
            verify(folder, with_training_state=with_training_state, share=share)
        except (DamagedError, FileNotFoundError) as error:
            damage = str(error)
        if lines := list(filter(None, processes.texts(damage) if together else [damage])):
            damaged.append(lines[0])
            continue
        if warn is not None:
            warn.extend(f"{line}; the one before it is used" for line in damaged)
        return folder
    if not together and folders and all_in(run) != folders:  # a training has pruned some meanwhile
        return newest(run, warn, with_training_state=with_training_state)
    if damaged:
        raise DamagedError(damaged[0])
    raise UserError(f"{run}: holds no checkpoint")


def newest_state(run: Path) -> dict[str, Any]:
    """Return the `state.json` of the newest complete checkpoint; see `newest`."""
    folder = newest(run, [])
    try:
        return read_state(folder)
    except UserError:
        if folder.is_dir():
            raise
    return newest_state(run)  # a training has pruned it meanwhile


def delete_after(run: Path, step: int) -> Path | None:
    """Delete the checkpoints after a step, and return the newest of the others.

    Nothing is deleted if no other is left.
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
