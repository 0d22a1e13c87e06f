"""Recognising fine-tuning that is finished, so that a repeated request is not run again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from foreword.disk import stored
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds
from foreword.tables.examples import Labelled
from foreword.train import tensor_files
from foreword.tuning.result import SCORES, VERSION
from foreword.tuning.tasks._contract import Task


def request_digest(
    trained: TrainedModel,
    task: Task,
    settings: Sequence[Mapping[str, Any]],
    examples: Iterable[Sequence[Labelled]],
) -> str:
    """Return a digest of all that decides a result: weights, task, settings, examples, and version.

    Args:
        trained: the pretrained model.
        task: the task.
        settings: all settings of fine-tuning, as tables.
        examples: all examples.
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"version {VERSION}".encode())
    digest.update(tensor_files.checksum(trained.folder, "weights").encode())
    tables: list[Mapping[str, Any]] = [{"kind": kinds.name_of(task), **config.to_table(task)}]
    tables += settings
    digest.update(stored.to_json(tables).encode())
    for part in examples:
        digest.update(f"{len(part)} examples".encode())
        for example in part:
            digest.update(repr((example.text, example.label, example.pair)).encode())
    return digest.hexdigest()


def find(folder: Path, evaluation: Path, name: str, request: str) -> dict[str, Any] | None:
    """Return the scores of an earlier result of the same request; None if there is none.

    A kill between the writing of the model and of its scores is made good: the folder of the model
    holds a copy of the scores.

    Args:
        folder: the folder of the tuned model.
        evaluation: the file of its scores.
        name: name of the result.
        request: see `request_digest`.

    Raises:
        UserError: the scores cannot be written.
    """
    if not (folder / SCORES).is_file():
        return None
    document = stored.read(folder / SCORES)
    if (document.get("request"), document.get("name")) != (request, name):
        return None
    if not evaluation.exists():
        stored.write(evaluation, document)
    return document if stored.read(evaluation) == document else None
