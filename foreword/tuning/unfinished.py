"""Finished seeds of fine-tuning, kept until all are done: a killed call loses at most one.

Each has a folder of its own, named after a digest of all that decides its result, which appears
when it is complete. The folder around them is removed when the result is written.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from foreword.disk import atomic, manifest, stored
from foreword.errors import UserError
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds
from foreword.tables.examples import Labelled
from foreword.train.checkpoint import load_weights, weights_of
from foreword.tuning.fine_tuner import SeedResult, TuneSettings
from foreword.tuning.finished import request_digest
from foreword.tuning.network import Network
from foreword.tuning.result import VERSION, as_scored
from foreword.tuning.tasks._contract import Task

KIND = "tuned-seed"
SEED, WEIGHTS = "seed.json", "weights.safetensors"


@dataclass(frozen=True)
class FinishedSeeds:
    """The finished seeds of one variant in a folder.

    Attributes:
        folder: folder of all seeds of all variants; None to keep none.
        digest: digest of everything that decides the results, except the seed.
    """

    folder: Path | None
    digest: str

    @classmethod
    def of(
        cls,
        folder: Path | None,
        trained: TrainedModel,
        task: Task,
        settings: TuneSettings,
        examples: Mapping[str, Sequence[Labelled]],
    ) -> FinishedSeeds:
        """Return the finished seeds of a variant.

        Args:
            folder: folder of all seeds; None to keep none.
            trained: the pretrained model.
            task: the task.
            settings: of the variant. The number of seeds matters only where they draw examples.
            examples: all examples, to train on and to score, by name.
        """
        if folder is None:
            return cls(None, "")
        table = config.to_table(settings) | {"parts": list(examples)}
        if settings.examples is None:
            del table["seeds"]
        return cls(folder, request_digest(trained, task, [table], examples.values()))

    def find(
        self, seed: int, build: Callable[[], Network] | None
    ) -> tuple[SeedResult, Network | None] | None:
        """Return the result of a seed, and its network; None if it is not there, or damaged.

        Args:
            seed: the seed.
            build: returns a network for its weights; None if they are not needed.
        """
        if self.folder is None or not (place := self._place(seed)).is_dir():
            return None
        try:
            manifest.verify(place, KIND, VERSION, (SEED,))
            about = stored.read(place / SEED)
            task = config.build_kind(kinds.Part("tuning/tasks"), about["task"], "task")
            curve, final = [as_scored(row) for row in about["curve"]], as_scored(about["final"])
            result = SeedResult(curve, final, task, about["confusion"], about["correct"])
            if build is None or result.has_diverged:
                return result, None
            if not (place / WEIGHTS).is_file():
                return None
            network = build()
            load_weights(place, network)
            return result, network
        except (KeyError, UserError):
            return None  # it is trained again

    def save(self, seed: int, result: SeedResult, network: Network | None) -> None:
        """Keep the result of a seed, with its network if it will be saved.

        Raises:
            UserError: the folder cannot be written.
        """
        if self.folder is None:
            return
        table = {"kind": kinds.name_of(result.task), **config.to_table(result.task)}
        content: dict[str, Any] = {**result._asdict(), "task": table}
        try:
            with atomic.folder(self._place(seed)) as part:
                (part / SEED).write_text(stored.dumps(content), encoding="utf-8")
                if network is not None:
                    save_file(weights_of(network), part / WEIGHTS)
                manifest.write(part, KIND, VERSION)
        except UserError:
            with suppress(OSError):
                self.folder.rmdir()  # if it holds nothing
            raise

    def _place(self, seed: int) -> Path:
        assert self.folder is not None
        return self.folder / f"{self.digest}-{seed}"


def folder_for(out: Path) -> Path:
    """Return the folder of the finished seeds of a result that will be written to `out`."""
    return out.with_name(f".{out.name}.seeds")


def remove(folder: Path) -> None:
    """Remove the finished seeds, since the result is written."""
    shutil.rmtree(folder, ignore_errors=True)
