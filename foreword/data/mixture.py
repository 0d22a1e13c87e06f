"""A mixture of sources of text: the settings `[data]` of a recipe, and the worth of repetition.

[[data.sources]]
name = "web"
path = "web/*.jsonl.zst"
weight = 0.9

[[data.sources]]
name = "novels"
path = "novels/"
weight = 0.1
epochs = 4
stage = "last 10 %"
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from foreword.settings.ranges import EpochsOfText, Positive, Ranged

# Muennighoff et al. 2023, section 5: the fitted decay of the value of repeated tokens.
DECAY = 15.387756
WORTH_IT = 4.0  # epochs up to which repeated tokens are worth nearly as much as new ones (same)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_NUMBER = r"(\d{1,3}(?:\.\d{1,6})?)\s*%"
_END = re.compile(rf"(first|last)\s+{_NUMBER}")
_PART = re.compile(rf"{_NUMBER}\s+to\s+{_NUMBER}")


@dataclass(frozen=True)
class Source(Ranged):
    """A source of text in a mixture.

    Attributes:
        name: letters, digits, `_`, `.` and `-`; it names the source's held-out loss.
        path: file, folder or pattern of text, or a folder that `prepare` wrote; relative to the
            folder that `--data` names, else to the current one.
        weight: share of the rows while the source is read, relative to the other sources read then;
            None with `temperature`.
        epochs: how many times its text is read at most; None for no limit. What its weight would
            read beyond that is shared by the others, all along its stage.
        stage: when it is read, as `first 20 %`, `last 10 %` or `20 % to 60 %` of training; "" for
            all of it.
    """

    name: str
    path: str
    weight: Positive | None = None
    epochs: EpochsOfText | None = None
    stage: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"name: at most 64 letters, digits, '_', '.' and '-', got {self.name!r}"
            )
        if not self.path or "\0" in self.path:
            raise ValueError(f"path: the path of source '{self.name}' is empty")
        begin, end = self.span
        if not 0 <= begin < end <= 1:
            raise ValueError(f"stage: {self.stage!r} is not a part of training")

    @property
    def span(self) -> tuple[float, float]:
        """Where the source is read, as shares of training: (0.9, 1) of `last 10 %`.

        Raises:
            ValueError: the stage cannot be read.
        """
        stage = self.stage.strip()
        if not stage:
            return 0.0, 1.0
        if match := _END.fullmatch(stage):
            share = float(match[2]) / 100
            return (0.0, share) if match[1] == "first" else (1 - share, 1.0)
        if match := _PART.fullmatch(stage):
            return float(match[1]) / 100, float(match[2]) / 100
        raise ValueError(
            f"stage: expected 'first 20 %', 'last 10 %' or '20 % to 60 %', got {self.stage!r}"
        )


@dataclass(frozen=True)
class DataSettings(Ranged):
    """The sources of the training text, and how they are mixed.

    Attributes:
        sources: in order; none if `--data` names the text.
        temperature: makes weights of the sources' sizes in tokens, size ** (1 / temperature)
            (Conneau et al. 2020, section 3.1): 1 draws by size, a high one equally; None if the
            sources have weights.
    """

    sources: tuple[Source, ...] = ()
    temperature: Positive | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sources and self.temperature is not None:
            raise ValueError("temperature: there are no sources to mix; add [[data.sources]]")
        names: set[str] = set()
        for number, source in enumerate(self.sources):
            where = f"sources[{number}]"
            if source.name.lower() in names:
                raise ValueError(f"{where}.name: there is another source '{source.name}'")
            names.add(source.name.lower())
            if self.temperature is None and source.weight is None:
                raise ValueError(
                    f"{where}.weight: source '{source.name}' needs a weight, or the mixture a "
                    "temperature"
                )
            if self.temperature is not None and source.weight is not None:
                raise ValueError(
                    f"{where}.weight: cannot be combined with temperature, which makes weights of "
                    "the sizes"
                )

    def weights(self, sizes: Sequence[float]) -> list[float]:
        """Return the weight of each source, given their sizes in tokens; they sum to 1."""
        if self.temperature is None:
            weights = [source.weight or 0.0 for source in self.sources]
        else:
            logs = [math.log(max(size, 1.0)) / self.temperature for size in sizes]
            weights = [math.exp(log - max(logs)) for log in logs]
        return [weight / sum(weights) for weight in weights]


def effective_epochs(epochs: float) -> float:
    """Return how many epochs of new text some epochs of one text are worth.

    D' = U + U R* (1 - exp(-R / R*)) tokens, where U are the tokens of the text, R the repetitions
    (epochs - 1) and R* = 15.4 the fitted decay (Muennighoff et al. 2023, "Scaling Data-Constrained
    Language Models", equation 5). The limit is 1 + R* epochs.
    """
    if epochs <= 1:
        return epochs
    return 1 + DECAY * (1 - math.exp(-(epochs - 1) / DECAY))
