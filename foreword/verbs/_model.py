"""The arguments of verbs that read a trained model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from foreword.display import lines
from foreword.verbs._contract import ARGUMENT, PathName

if TYPE_CHECKING:
    from foreword.evaluation.loaded import LoadedModel


@dataclass(frozen=True)
class ReadsModel:
    """A model, and where it computes.

    Attributes:
        run: a run folder, or one of its checkpoints/step-*.
        device: auto, cpu, cuda or mps.
    """

    run: Annotated[PathName, ARGUMENT]
    device: str = field(default="auto", kw_only=True)

    def opened(self) -> LoadedModel:
        """Return the model, and print what was skipped on the way.

        Raises:
            UserError: there is no such run or device.
        """
        from foreword.evaluation.loaded import load

        loaded = load(Path(self.run), self.device)
        for note in loaded.trained.notes:
            lines.say(note)
        return loaded

    def say_unknown(self, loaded: LoadedModel, *texts: str) -> None:
        """Say how many tokens of the texts the model cannot tell apart, if any."""
        ids = [i for text in texts for i in loaded.tokenizer.encode(text, special=True).tolist()]
        if count := ids.count(loaded.tokenizer.vocab.unknown):
            lines.say(
                f"{count:,} of {len(ids):,} tokens of the text are [UNK]: unknown to the model"
            )
