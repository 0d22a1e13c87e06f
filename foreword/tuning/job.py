"""One fine-tuning: what it learns from and how, and where its results go."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from foreword.disk import atomic, stored
from foreword.errors import UserError
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config
from foreword.tables.examples import Labelled
from foreword.train import tensor_files
from foreword.tuning.settings import TuneSettings
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tuned_folder import SCORES, VERSION, TunedOn

ChosenOn = Literal["train", "dev"]


@dataclass(frozen=True)
class Examples:
    """The examples of a fine-tuning, and what is known of them.

    Attributes:
        extra: more examples to score when training has ended, by the name of their scores.
        tuned_on: the form of the training examples.
        about: where they came from, as the settings of the scores record it; None for nothing.
        skipped: number of rows without text or label.
        warnings: what is shown before the work, a line each.
        notes: what a reader of the scores has to know of them, a line each.
    """

    train: Sequence[Labelled]
    dev: Sequence[Labelled]
    extra: Mapping[str, Sequence[Labelled]] = field(default_factory=dict)
    tuned_on: TunedOn = TunedOn()
    about: Mapping[str, Any] | None = None
    skipped: int = 0
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def parts(self) -> dict[str, Sequence[Labelled]]:
        """All examples, by name."""
        return {"train": self.train, "dev": self.dev, **self.extra}


@dataclass(frozen=True)
class TuneJob:
    """One fine-tuning, of one variant of settings or of several to compare.

    Attributes:
        variants: settings, at least one; `foreword.tuning.tune.variants` returns the usual ones.
        rates: peak learning rates to choose from; fewer than two leave nothing to choose.
        chosen_on: what chooses one: a part of `train` that the trials are not trained on, or
            `dev`, as papers did.
        has_words: whether a bag of words stands beside a single variant too.
        evaluation: file of the scores; None to save none.
        folder: folder of the tuned model; beside it each finished seed is kept until all are done.
    """

    task: Task
    examples: Examples
    variants: Sequence[TuneSettings] = (TuneSettings(),)
    rates: tuple[float, ...] = ()
    chosen_on: ChosenOn = "train"
    has_words: bool = False
    name: str = ""
    evaluation: Path | None = None
    folder: Path | None = None

    @property
    def seeds_folder(self) -> Path | None:
        """The folder of finished seeds: a call that was interrupted does not repeat them."""
        return self.folder and self.folder.with_name(f".{self.folder.name}.seeds")

    def request(self, trained: TrainedModel) -> str:
        """Return a digest of all that decides the result."""
        tables: list[Mapping[str, Any]] = [config.to_table(variant) for variant in self.variants]
        if len(self.rates) > 1:
            tables.append({"values": self.rates, "chosen_on": self.chosen_on})
        if self.examples.extra or self.has_words:
            tables.append({"further": list(self.examples.extra), "has_words": self.has_words})
        return digest_of(trained, self.task, tables, self.examples)

    def done(self, trained: TrainedModel) -> dict[str, Any] | None:
        """Return the scores if the same fine-tuning is done already; None if it can begin.

        A kill between the writing of the model and of its scores is made good: the folder of the
        model holds a copy of the scores.

        Raises:
            UserError: another result is there, which is not overwritten, or nothing can be written.
        """
        assert self.folder is not None and self.evaluation is not None
        if (self.folder / SCORES).is_file():
            content = stored.read(self.folder / SCORES)
            if (content.get("request"), content.get("name")) == (self.request(trained), self.name):
                if not self.evaluation.exists():
                    stored.write(self.evaluation, content)
                if stored.read(self.evaluation) == content:
                    return content
        atomic.require_writable(self.evaluation, is_folder=False, remedy=atomic.MOVE_AWAY)
        if self.evaluation.exists():
            raise UserError(f"{self.evaluation}: already exists; choose another --name")
        atomic.require_new_folder(self.folder, "choose another --out or --name")
        return None

    def with_settings(self, settings: TuneSettings) -> TuneJob:
        """Return the fine-tuning with one variant of settings, and nothing to choose."""
        return replace(self, variants=[settings], rates=())


def digest_of(
    trained: TrainedModel, task: Task, tables: Sequence[Mapping[str, Any]], examples: Examples
) -> str:
    """Return a digest of weights, task, settings, examples, and version."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"version {VERSION}".encode())
    digest.update(tensor_files.checksum(trained.folder, "weights").encode())
    of_task = config.kind_table(task)
    digest.update(stored.to_json([of_task, *tables]).encode())
    for part in examples.parts.values():
        digest.update(f"{len(part)} examples".encode())
        for example in part:
            group = (example.group,) if example.group else ()
            digest.update(repr((example.text, example.label, example.pair, *group)).encode())
    return digest.hexdigest()
