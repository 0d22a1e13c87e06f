"""TensorBoard: event files in the run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from foreword.settings import config
from foreword.trackers._contract import TrackedRun, Tracker, samples, scalars

FOLDER = "tensorboard"  # in the run folder


@dataclass(frozen=True)
class TensorBoard(Tracker):
    """Write event files to `RUN/tensorboard`; `tensorboard --logdir RUN` shows them.

    Numbers are scalars (`train/loss`, `heldout/perplexity`), samples and the recipe are texts.
    """

    package: ClassVar[str] = "tensorboard"

    def open(self, folder: Path, name: str, identity: str) -> TrackedRun:
        """Begin an event file; TensorBoard reads all of the folder as one run."""
        del name, identity
        from torch.utils.tensorboard import SummaryWriter

        return _EventFiles(SummaryWriter(str(folder / FOLDER)))


class _EventFiles(TrackedRun):
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def configure(self, config_table: Mapping[str, Any]) -> None:
        self._writer.add_text("recipe", _block(config.dumps(config_table)), 0)

    def record(self, record: Mapping[str, Any]) -> None:
        step = record["step"]
        for name, value in scalars(record).items():
            self._writer.add_scalar(name, value, step)
        texts = [_block(f"{one['prompt']}\n->\n{one['text']}") for one in samples(record)]
        if texts:
            self._writer.add_text(record["kind"], "\n\n".join(texts), step)
        self._writer.flush()  # what is noted as tracked survives a kill

    def close(self, *, is_failed: bool) -> None:
        del is_failed
        self._writer.close()


def _block(text: str) -> str:
    """Return a text as Markdown shows it unchanged."""
    return "\n".join(f"    {line}" for line in text.splitlines())
