"""Finished seeds of fine-tuning, kept until all are done: a killed call loses at most one.

Each has a folder of its own, named after a digest of all that decides its result, which appears
when it is complete. The folder around them is removed when the result is written.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from safetensors.numpy import load_file
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import save_file

from foreword.disk import atomic, manifest, stored
from foreword.errors import UserError
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds
from foreword.train.checkpoint import load_weights, weights_of
from foreword.tuning.fine_tuner import SeedResult
from foreword.tuning.job import TuneJob, digest_of
from foreword.tuning.network import Network
from foreword.tuning.scores import Scores
from foreword.tuning.settings import TuneSettings
from foreword.tuning.tuned import VERSION

KIND = "tuned-seed"
SEED, WEIGHTS, OUTPUTS = "seed.json", "weights.safetensors", "outputs.safetensors"


@dataclass(frozen=True)
class SeedStore:
    """The finished seeds of one variant in a folder.

    Attributes:
        folder: folder of all seeds of all variants; None to keep none.
        digest: digest of everything that decides the results, except the seed.
    """

    folder: Path | None
    digest: str = ""

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
        self, name: str, build: Callable[[], Network] | None
    ) -> tuple[SeedResult, Network | None] | None:
        """Return the result of a training, and its network; None if it is not there, or damaged.

        Args:
            build: returns a network for its weights; None if they are not needed.
        """
        if self.folder is None or not (folder := self._folder_of(name)).is_dir():
            return None
        try:
            manifest.verify(folder, KIND, VERSION, (SEED,))
            about = stored.read(folder / SEED)
            file = folder / OUTPUTS
            result = SeedResult(
                [Scores.of(row) for row in about["curve"]],
                Scores.of(about["final"]),
                config.build_kind(kinds.Part("tuning/tasks"), about["task"], "task"),
                about["confusion"],
                about["correct"],
                load_file(file)["outputs"] if file.exists() else None,
            )
            if build is None or result.has_diverged:
                return result, None
            if not (folder / WEIGHTS).is_file():
                return None
            network = build()
            load_weights(folder, network)
            return result, network
        except (KeyError, UserError):
            return None  # it is trained again

    def save(self, name: str, result: SeedResult, network: Network | None) -> None:
        """Keep the result of a training, with its network if it will be saved.

        Raises:
            UserError: the folder cannot be written.
        """
        if self.folder is None:
            return
        content = {
            "curve": [scores.as_row() for scores in result.curve],
            "final": result.final.as_row(),
            "task": {"kind": kinds.name_of(result.task), **config.to_table(result.task)},
            "confusion": result.confusion,
            "correct": result.correct,
        }
        try:
            with atomic.folder(self._folder_of(name)) as part:
                (part / SEED).write_text(stored.dumps(content), encoding="utf-8")
                if network is not None:
                    save_file(weights_of(network), part / WEIGHTS)
                if result.outputs is not None:
                    save_arrays({"outputs": result.outputs}, part / OUTPUTS)
                manifest.write(part, KIND, VERSION)
        except UserError:
            with suppress(OSError):
                self.folder.rmdir()  # if it holds nothing
            raise

    def _folder_of(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{self.digest}-{name.removeprefix('seed ').replace(' ', '-')}"
