"""The whole model of a sharded training, for what the first process does with it alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from foreword.nn.init import shapes_only
from foreword.nn.model import Model
from foreword.nn.sharded import gather, local_share, set_values
from foreword.runs.setup import TrainingSetup
from foreword.runs.sizes import least_memory, memory_of
from foreword.train import processes
from foreword.train.checkpoint import stored_tensors

MOST = 0.8  # share of the memory that training and the whole weights may take
CPU = torch.device("cpu")


@dataclass(frozen=True)
class GatheredModel:
    """Gathers the model of a training in the first process, where it is not whole in each.

    Attributes:
        setup: the set-up of the training.
        device: where it is gathered.
    """

    setup: TrainingSetup
    device: torch.device

    def gather(self, *, is_needed: bool = True) -> Model | None:
        """Return the model whole in the first process, and None in the others.

        For a sharded model this is a copy without activation checkpointing and compilation. All
        processes call it together.

        Args:
            is_needed: whether the first process needs it; else it gets None.
        """
        setup = self.setup
        if setup.sharded is None:
            return setup.model if is_needed and processes.is_first() else None
        if not processes.of_first(is_needed):
            return None
        copied: dict[str, torch.Tensor] = {}
        model = None
        if processes.is_first():
            with shapes_only("cpu"):
                model = setup.recipe.build(setup.vocab)
            model = model.to(self.device)
            copied = stored_tensors(model)
        for name, tensor in stored_tensors(setup.model).items():
            values = gather(tensor.detach())
            if copied:
                set_values(copied[name], values)
        return model


def gathered_model(setup: TrainingSetup) -> GatheredModel | None:
    """Return what gathers the model; None if the first process has no room for it.

    It is gathered on the device of the training, beside the process's share, or else on the CPU.
    All processes call it together.
    """
    if setup.sharded is None:
        return GatheredModel(setup, setup.device)
    weights = 4 * setup.model.count_parameters()
    shards = local_share(next(setup.model.parameters())).count
    share = sum(least_memory(setup.recipe, setup.vocab).values()) // shards
    places = (setup.device, CPU)
    held = (share, share if setup.device == CPU else 0)
    fitting = [n for n, place in enumerate(places) if held[n] + weights <= MOST * memory_for(place)]
    place = int(processes.of_first(fitting[0] if fitting else -1))
    return None if place < 0 else GatheredModel(setup, places[place])


def memory_for(device: torch.device) -> int:
    """Return the bytes of memory that each process has on a device."""
    sharing = processes.local_count() if device.type == "cpu" else 1
    return memory_of(device) // sharing
