"""The head with which `transformers` classifies with a family: the default, so that it exports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

from foreword.errors import UserError
from foreword.interop import exporting
from foreword.interop.hf._contract import SequenceClassifier
from foreword.runs.trained_model import TrainedModel
from foreword.tuning.pooled import HiddenLayer, PooledTask
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.tasks.regress import Regress


def with_published_head(task: Task, trained: TrainedModel) -> Task:
    """Return the task with the head of the model's family for what its settings leave open.

    A task that is not exported, or whose settings rule that head out, stays as it is.

    Args:
        task: the task.
        trained: the pretrained model.
    """
    if not isinstance(task, Classify | Regress) or task.mix_layers:
        return task
    published = published_head(trained)
    if published is None or published.hidden_layer not in get_args(HiddenLayer):
        return task
    if task.pooling not in (None, published.pooling):
        return task
    head: dict[str, Any] = {"pooling": published.pooling, "hidden_layer": published.hidden_layer}
    return replace(task, **{name: getattr(task, name) or value for name, value in head.items()})


def published_head(trained: TrainedModel) -> SequenceClassifier | None:
    """Return the class of `transformers` that classifies with such a model, if there is one."""
    trained, _ = exporting.without_boundary_head(trained)
    try:
        family = exporting.find_family(trained)
    except UserError:
        return None
    _, design = family.folders(trained.model, trained.recipe)[""]
    return family.classifier(design)


def has_head(task: PooledTask, default_pooling: str, published: SequenceClassifier) -> bool:
    """Return whether a task's head is that of a class, `default_pooling` being the template's."""
    return (task.pooling or default_pooling, task.hidden_layer or "none") == (
        published.pooling,
        published.hidden_layer,
    )
