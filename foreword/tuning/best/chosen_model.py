"""A chosen model: an average of candidates, in a folder with each one's files.

labels.json              the task, as of every tuned model
parts.json               the kind, weight and temperature of each part
word_counts/, ...        the files of each part; `fine_tuned` is a tuned model of its own
model/                   the pretrained model as a run
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from foreword.disk import atomic, manifest, stored
from foreword.runs.run_folder import open_run
from foreword.settings import kinds
from foreword.tables.examples import Labelled, LabelledTexts
from foreword.tuning.best.averages import average, comparable
from foreword.tuning.best.choosing import ChosenPart
from foreword.tuning.best.material import Material
from foreword.tuning.encoded import by_example, cut_count
from foreword.tuning.settings import TuneSettings
from foreword.tuning.tasks._contract import ExampleOutputs, Task
from foreword.tuning.tune_result import write_run
from foreword.tuning.tuned_folder import CHOSEN, SCORES, Tuned, TunedOn
from foreword.tuning.tuned_model import Predictor
from foreword.types import Array

KIND, VERSION = "chosen", 1
MODEL = "model"
CHUNK = 1024  # texts whose counts and features are in memory at once


@dataclass(frozen=True, repr=False)
class ChosenModel(Predictor):
    """The average of candidates that cross-validation chose.

    Attributes:
        material: no examples; the model and the task that the parts read examples with.
    """

    parts: Sequence[ChosenPart]
    material: Material
    source: Path
    tuned_on: TunedOn = TunedOn()

    @property
    def task(self) -> Task:  # type: ignore[override]
        return self.material.task

    @property
    def labels(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.material.labels

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.material.trained.device

    @property
    def dtype(self) -> torch.dtype:  # type: ignore[override]
        return self.material.trained.dtype

    def with_task(self, task: Task) -> Self:
        return replace(self, material=replace(self.material, task=task))

    @property
    def max_tokens(self) -> int:
        return self.material.template.length

    @property
    def width(self) -> int:
        if self.material.form == "vectors":
            text = LabelledTexts.of([Labelled("")])
            return int(averaged(self.parts, self.material.of(text)).shape[1])
        return len(self.labels) if self.material.form in ("classes", "sets") else 1

    def compute(
        self, examples: LabelledTexts, done: Callable[[int], None] = lambda count: None
    ) -> tuple[list[ExampleOutputs], int]:
        results: list[ExampleOutputs] = []
        cut = 0
        chunk = CHUNK // 8 if self.task.needs.reads_tokens else CHUNK
        for start in range(0, len(examples), chunk):
            material = self.material.of(examples[start : start + chunk])
            outputs = averaged(self.parts, material).astype(np.float32)
            results += by_example(material.examples, material.encoded, outputs)
            cut += cut_count(material.encoded)
            done(len(material))
        return results, cut


def averaged(parts: Sequence[ChosenPart], material: Material) -> Array:
    """Return the average of the parts' outputs, as `Fitted.outputs` returns those of each."""
    outputs = [
        (comparable(part.fitted.outputs(material), part.temperature, material), part.weight)
        for part in parts
    ]
    return average(outputs, material)


def save(
    folder: Path,
    material: Material,
    parts: Sequence[ChosenPart],
    tuned_on: TunedOn,
    scores: Mapping[str, Any],
) -> None:
    """Write a chosen model to a new folder.

    Args:
        material: the training examples, for their model and task.
        scores: the scores, for `TuneJob.done`.

    Raises:
        UserError: the folder cannot be written.
    """
    trained = material.trained
    tuned = Tuned(material.task, material.labels, material.template, tuned_on)
    with atomic.folder(folder) as new:
        tuned.save(new, trained.recipe)
        about = []
        for part in parts:
            part.fitted.save(new / part.name)
            about.append(
                {"kind": part.name, "weight": part.weight, "temperature": part.temperature}
            )
        settings = {"max_length": material.settings.max_length}
        stored.write(new / CHOSEN, {"parts": about, "settings": settings})
        write_run(new / MODEL, trained.model, trained.recipe)
        trained.tokenizer.save(new / MODEL / "tokenizer")
        (new / SCORES).write_text(stored.dumps(scores), encoding="utf-8")
        manifest.write(new, KIND, VERSION)


def load(folder: Path, device: str = "auto") -> ChosenModel:
    """Read a chosen model.

    Raises:
        UserError: it is damaged, or a plug-in is missing.
    """
    manifest.verify(folder, KIND, VERSION, (CHOSEN,))
    tuned, about = Tuned.read(folder), stored.read(folder / CHOSEN)
    trained = open_run(folder / MODEL, device)
    parts = [
        ChosenPart(
            one["kind"],
            kinds.load("tuning/candidates", one["kind"]).read(folder / one["kind"], trained),
            one["weight"],
            one["temperature"],
        )
        for one in about["parts"]
    ]
    settings = TuneSettings(**about["settings"])
    material = Material(
        trained, tuned.task, tuned.labels, tuned.template, LabelledTexts.of([]), settings
    )
    return ChosenModel(parts, material, folder, tuned.tuned_on)
