"""Finished seeds of fine-tuning, kept until all are done: a killed call loses at most one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

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

WEIGHTS, OUTPUTS = "weights", "outputs"


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
        self, name: str, build: Callable[[], Network] | None
    ) -> tuple[SeedResult, Network | None] | None:
        """Return the result of a training, and its network; None if it is not there, or damaged.

        Args:
            build: returns a network for its weights; None if they are not needed.
        """
        file = self.folder and store.find(self.folder, self._key(name))
        if file is None:
            return None
        try:
            about, folder = stored.read(file), file.with_suffix("")
            if any(
                tensor_files.checksum(folder, group) != about[group]
                for group in (WEIGHTS, OUTPUTS)
                if group in about
            ):
                return None
            result = SeedResult(
                [Scores.of(row) for row in about["curve"]],
                Scores.of(about["final"]),
                config.build_kind(kinds.Part("tuning/tasks"), about["task"], "task"),
                about["confusion"],
                about["correct"],
                load_file(folder / tensor_files.name_of(OUTPUTS))[OUTPUTS].numpy()
                if OUTPUTS in about
                else None,
            )
            if build is None or result.has_diverged:
                return result, None
            if WEIGHTS not in about:
                return None
            network = build()
            load_weights(folder, network)
            return result, network
        except (KeyError, OSError, UserError):
            return None  # it is trained again

    def save(self, name: str, result: SeedResult, network: Network | None) -> None:
        """Keep the result of a training, with its network if it will be saved.

        Raises:
            UserError: the folder cannot be written.
        """
        if self.folder is None:
            return
        content = {
            store.KEY: self._key(name),
            "curve": [scores.as_row() for scores in result.curve],
            "final": result.final.as_row(),
            "task": config.kind_table(result.task),
            "confusion": result.confusion,
            "correct": result.correct,
        }
        short, outputs = name.removeprefix("seed ").replace(" ", "-"), result.outputs
        file = store.file_for(self.folder, f"{self.variant}-{short}", self._key(name))
        try:
            files = {WEIGHTS: {} if network is None else stored_tensors(network)}
            files |= {OUTPUTS: {OUTPUTS: torch.from_numpy(outputs)}} if outputs is not None else {}
            if any(files.values()):
                with atomic.folder(file.with_suffix("")) as part:
                    for group, tensors in files.items():
                        if tensors:
                            path = part / tensor_files.name_of(group)
                            content[group] = tensor_files.write(path, tensors)["blake2b"]
            stored.write(file, content)
        except UserError:
            with suppress(OSError):
                self.folder.rmdir()  # if it holds nothing
            raise

    def _key(self, name: str) -> dict[str, Any]:
        return {"variant": self.variant, "training": name}
