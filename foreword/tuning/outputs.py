"""What a network computes for examples: outputs in order, texts that it writes, losses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from foreword.nn.evaluation_mode import evaluation_mode
from foreword.train.device import autocast
from foreword.tuning.answers import AnswerExamples
from foreword.tuning.features import ExampleSet, NetworkBatch
from foreword.tuning.network import Network
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tasks._writing import WritingTask
from foreword.types import Array, Loss

SCORING_DTYPE = torch.float32  # of dev examples in any training, since tuned models predict in it


def scored_outputs(
    task: Task,
    network: Network,
    examples: ExampleSet,
    done: Callable[[Array], None] | None = None,
) -> Array:
    """Return a network's outputs for examples, or the texts that it writes if the task writes.

    Args:
        done: called with the numbers of examples as they are answered.
    """
    if (
        isinstance(task, WritingTask)
        and isinstance(examples, AnswerExamples)
        and task.writes_for(examples.prompted)
    ):
        most = examples.most
        if task.judge.writes:
            most = task.most_tokens((), examples.prompted)
        answers = examples.write(network, most, done)
        which = 0 if task.judge.writes else 1
        return np.fromiter((answer[which] for answer in answers), object, len(answers))
    return predict(network, examples, next(network.parameters()).device, SCORING_DTYPE, done)


def predict(
    network: Network,
    examples: ExampleSet,
    device: torch.device,
    dtype: torch.dtype,
    done: Callable[[Array], None] | None = None,
) -> Array:
    """Return the outputs of every example in order, (outputs, labels) float32.

    The network is in evaluation mode meanwhile.

    Args:
        dtype: the precision to compute in.
        done: called after each batch with the numbers of its examples.
    """
    outputs, numbers = [], []
    with evaluation_mode(network), torch.inference_mode():
        for batch in examples.scoring_batches(device.type):
            with autocast(device, dtype):
                on_device = batch.to(device)
                batch_outputs = network.scored_outputs(
                    on_device.features(network), on_device.targets, on_device.windows
                )
                outputs.append(batch_outputs.cpu().numpy())
            numbers.append(batch.numbers)
            if done is not None:
                done(np.unique(batch.numbers))
    order = np.argsort(np.concatenate(numbers), kind="stable")
    return np.asarray(np.concatenate(outputs)[order])


def batch_loss(network: Network, task: Task, batch: NetworkBatch) -> tuple[Tensor, Loss]:
    """Return what the head reads of a batch on the device, and the loss with the auxiliary one."""
    features, auxiliary = batch.features_and_loss(network)
    outputs = network.training_outputs(features, batch.targets, batch.windows)
    loss = task.loss(outputs, batch.targets, batch.numbers)
    return features, Loss(loss.total + auxiliary, loss.count)


def mean_loss(network: Network, task: Task, examples: ExampleSet, numbers: Array) -> Tensor:
    """Return the mean loss of the examples `numbers`, (), with a graph for gradients."""
    device = next(network.parameters()).device
    batches = examples.batches(numbers, device.type, 0)
    losses = [batch_loss(network, task, batch.to(device))[1] for batch in batches]
    return torch.stack([one.total for one in losses]).sum() / sum(one.count for one in losses)
