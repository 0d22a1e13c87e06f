"""The pretrained model, fine-tuned."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from foreword.nn.model import neural_settings
from foreword.runs.trained_model import TrainedModel
from foreword.settings.ranges import Count, Positive
from foreword.tuning.best.linear import UNSEEN
from foreword.tuning.best.material import Material
from foreword.tuning.candidates._contract import Fitted, Learner
from foreword.tuning.job import Examples, TuneJob
from foreword.tuning.settings import TuneSettings
from foreword.tuning.strategies.full import Full
from foreword.tuning.tune import tune
from foreword.tuning.tune_result import TuneResult, save_network
from foreword.tuning.tuned_model import TunedModel, load_tuned
from foreword.types import Array

DUMMY = 2  # examples scored in place of dev examples, which there are none of


@dataclass(frozen=True)
class FittedNetwork(Fitted):
    """A fine-tuned network.

    Attributes:
        result: the result of fine-tuning it; None if it was read.
    """

    tuned: TunedModel
    result: TuneResult | None = None

    @classmethod
    def of(cls, result: TuneResult, trained: TrainedModel) -> FittedNetwork:
        """Return the network of a fine-tuning, on the device of the pretrained model."""
        tuned = TunedModel(
            network=result.network.to(trained.device),
            task=result.task,
            labels=result.labels,
            template=result.template,
            tokenizer=result.tokenizer,
            device=trained.device,
            dtype=trained.dtype,
            recipe=result.recipe,
            source=Path(),
        )
        return cls(tuned, result)

    @classmethod
    def read(cls, folder: Path, trained: TrainedModel) -> FittedNetwork:
        return cls(load_tuned(folder, trained.device.type))

    def outputs(self, material: Material) -> Array:
        """Return what the network computes; a label that no example had is never likely."""
        results = self.tuned.outputs_of(material.examples)
        outputs = np.concatenate([result.outputs for result in results]).astype(np.float64)
        if material.form not in ("classes", "sets") or self.tuned.labels == material.labels:
            return outputs
        of_all = np.full((len(outputs), len(material.labels)), UNSEEN)
        of_all[:, [material.labels.index(label) for label in self.tuned.labels]] = outputs
        return of_all

    def answering(self, settings: Mapping[str, Any]) -> FittedNetwork:
        """Return the network, whose own answers have these settings."""
        assert self.result is not None
        return replace(
            self, result=replace(self.result, task=replace(self.result.task, **settings))
        )

    def save(self, folder: Path) -> None:
        assert self.result is not None
        save_network(self.result, folder)


def one_network(given: TuneSettings, rate: float) -> TuneSettings:
    """Return the settings of one full fine-tuning on all examples, not calibrated."""
    return replace(
        given, strategy=Full(rate), seeds=1, examples=None, keep="last", patience=None,
        calibrate=False,
    )  # fmt: skip


@dataclass(frozen=True)
class FineTuned(Learner):
    """Fine-tuning of all weights, for more epochs the fewer the labels.

    Few labels get too few steps with three epochs: seeds then fail or stop half way (Mosbach et al.
    2021; Zhang et al. 2021).

    Attributes:
        steps: the least number of steps, if `most_epochs` allow it.
        most_epochs: the most epochs.
        rate: the learning rate by the model's width is multiplied by this.
    """

    title: ClassVar[str] = "fine-tuning"

    steps: Count = 400
    most_epochs: Count = 20
    rate: Positive = 1.0

    def fit(self, material: Material, seed: int) -> FittedNetwork:
        given = material.settings
        per_epoch = math.ceil(len(material) / given.batch)
        epochs = min(max(math.ceil(self.steps / per_epoch), given.epochs), self.most_epochs)
        epochs = getattr(given.strategy, "epochs", None) or epochs
        lr = given.strategy.peak_lr(neural_settings(material.trained.recipe.model)) * self.rate
        settings = replace(one_network(given, lr), epochs=epochs, score_every=epochs)
        examples = Examples(material.examples, material.examples[:DUMMY])
        result = tune(material.trained, TuneJob(material.task, examples, [settings]))
        return FittedNetwork.of(result, material.trained)

    @classmethod
    def read(cls, folder: Path, trained: TrainedModel) -> FittedNetwork:
        return FittedNetwork.read(folder, trained)
