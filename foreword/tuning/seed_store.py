"""Finished seeds of fine-tuning, kept until all are done: a killed call loses at most one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword.disk import atomic, store, stored
from foreword.errors import UserError
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds
from foreword.train import tensor_files
from foreword.train.checkpoint import load_weights, stored_tensors
from foreword.tuning.fine_tuner import SeedResult
from foreword.tuning.job import TuneJob, digest_of
from foreword.tuning.network import Network
from foreword.tuning.scores import Scores
from foreword.tuning.settings import TuneSettings

WEIGHTS = "weights"


@dataclass(frozen=True)
class SeedStore:
    """The finished seeds of one variant.

    Attributes:
        folder: folder of all seeds of all variants; None to keep none.
        variant: digest of everything that decides the results, except the seed.
    """

    folder: Path | None
    variant: str = ""

    @classmethod
    def of(cls, trained: TrainedModel, job: TuneJob, settings: TuneSettings) -> SeedStore:
        """Return the finished seeds of a variant of a job.

        The number of seeds matters only where they draw examples.
        """
        if job.seeds_folder is None:
            return cls(None)
        table = config.to_table(settings) | {"parts": list(job.examples.parts)}
        if settings.examples is None:
            del table["seeds"]
        return cls(job.seeds_folder, digest_of(trained, job.task, [table], job.examples))

    def find(
        self, seed: int, build: Callable[[], Network] | None
    ) -> tuple[SeedResult, Network | None] | None:
        """Return the result of a seed, and its network; None if it is not there, or damaged.

        Args:
            build: returns a network for its weights; None if they are not needed.
        """
        file = self.folder and store.find(self.folder, self._key(seed))
        if file is None:
            return None
        try:
            about, folder = stored.read(file), file.with_suffix("")
            result = SeedResult(
                [Scores.of(row) for row in about["curve"]],
                Scores.of(about["final"]),
                config.build_kind(kinds.Part("tuning/tasks"), about["task"], "task"),
                about["confusion"],
                about["correct"],
            )
            if build is None or result.has_diverged:
                return result, None
            if tensor_files.checksum(folder, WEIGHTS) != about[WEIGHTS]:
                return None
            network = build()
            load_weights(folder, network)
            return result, network
        except (KeyError, OSError, UserError):
            return None  # it is trained again

    def save(self, seed: int, result: SeedResult, network: Network | None) -> None:
        """Keep the result of a seed, with its network if it will be saved.

        Raises:
            UserError: the folder cannot be written.
        """
        if self.folder is None:
            return
        content = {
            store.KEY: self._key(seed),
            "curve": [scores.as_row() for scores in result.curve],
            "final": result.final.as_row(),
            "task": {"kind": kinds.name_of(result.task), **config.to_table(result.task)},
            "confusion": result.confusion,
            "correct": result.correct,
        }
        file = store.file_for(self.folder, f"{self.variant}-{seed}", self._key(seed))
        try:
            if network is not None:
                with atomic.folder(file.with_suffix("")) as part:
                    tensors = stored_tensors(network)
                    written = tensor_files.write(part / tensor_files.name_of(WEIGHTS), tensors)
                content[WEIGHTS] = written["blake2b"]
            stored.write(file, content)
        except UserError:
            with suppress(OSError):
                self.folder.rmdir()  # if it holds nothing
            raise

    def _key(self, seed: int) -> dict[str, Any]:
        return {"variant": self.variant, "seed": seed}
