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

[[stages]]                          # of the recipe: no novels before the last tenth of training
share = 0.9
data.sources.novels.weight = 0
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from foreword.settings import config
from foreword.settings.ranges import EpochsOfText, NonNegative, Positive, Ranged

# Muennighoff et al. 2023, section 5: the fitted decay of the value of repeated tokens.
DECAY = 15.387756
WORTH_IT = 4.0  # epochs up to which repeated tokens are worth nearly as much as new ones (same)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_STAGE = re.compile(
    r"(?:(first|last)\s+|(\d[\d.]*)\s*%\s+to\s+)(\d[\d.]*)\s*%"
)  # of an earlier Foreword: `first 20 %`, `last 10 %`, `20 % to 60 %`


@dataclass(frozen=True)
class Source(Ranged):
    """A source of text in a mixture.

    Attributes:
        name: letters, digits, `_`, `.` and `-`; it names the source's held-out loss.
        path: file, folder or pattern of text, or a folder that `prepare` wrote; relative to the
            folder that `--data` names, else to the current one.
        weight: share of the rows, relative to the other sources; 0 where it is not read. With
            `temperature` a factor of the weight that its size gives, and 1 by default.
        epochs: how many times its text is read at most; None for no limit. What its weight would
            read beyond that is shared by the others, wherever it is read.
    """

    name: str
    path: str
    weight: NonNegative | None = None
    epochs: EpochsOfText | None = None

    RENAMED: ClassVar[config.Renamed] = MappingProxyType(
        {"stage": lambda value: ("[[stages]], where weights change (docs/recipes.md)", value)}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"name: at most 64 letters, digits, '_', '.' and '-', got {self.name!r}"
            )
        if not self.path or "\0" in self.path:
            raise ValueError(f"path: the path of source '{self.name}' is empty")


@dataclass(frozen=True)
class DataSettings(Ranged):
    """The sources of the training text, and how they are mixed.

    Attributes:
        sources: in order; none if `--data` names the text.
        temperature: makes weights of the sources' sizes in tokens, size ** (1 / temperature)
            (Conneau et al. 2020, section 3.1): 1 draws by size, a high one equally; None for the
            sources' weights alone.
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

    def weights(self, sizes: Sequence[float]) -> list[float]:
        """Return the weight of each source, given their sizes in tokens; they sum to 1 or 0."""
        weights = [1.0 if source.weight is None else source.weight for source in self.sources]
        if self.temperature is not None:
            logs = [math.log(max(size, 1.0)) / self.temperature for size in sizes]
            by_size = (math.exp(log - max(logs)) for log in logs)
            weights = [weight * one for weight, one in zip(weights, by_size, strict=True)]
        total = math.fsum(weights) or 1.0  # `sum` of floats differs from Python 3.12 on
        return [weight / total for weight in weights]


def effective_epochs(epochs: float) -> float:
    """Return how many epochs of new text some epochs of one text are worth.

    D' = U + U R* (1 - exp(-R / R*)) tokens, where U are the tokens of the text, R the repetitions
    (epochs - 1) and R* = 15.4 the fitted decay (Muennighoff et al. 2023, "Scaling Data-Constrained
    Language Models", equation 5). The limit is 1 + R* epochs.
    """
    if epochs <= 1:
        return epochs
    return 1 + DECAY * (1 - math.exp(-(epochs - 1) / DECAY))


def stages_of(data: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return `data` of an earlier Foreword, whose sources have a `stage`, as of today.

    Returns:
        The sources without it, and the `stages` of the recipe in which they are read as before.
    """
    sources = [dict(source) for source in data.get("sources", ())]
    spans = [_span(source.pop("stage", "")) for source in sources]
    edges = sorted({edge for span in spans for edge in span})
    stages: list[dict[str, Any]] = []
    for begin, end in itertools.pairwise(edges):
        weights = {
            source["name"]: {"weight": source.get("weight", 1.0) * (first <= begin and end <= last)}
            for source, (first, last) in zip(sources, spans, strict=True)
        }
        stages.append({"share": end - begin, "data": {"sources": weights}})
    for source in sources if stages[1:] else ():
        source.update(stages[-1]["data"]["sources"][source["name"]])
    return {**data, "sources": sources}, stages[:-1]


def _span(stage: str) -> tuple[float, float]:
    """Return the shares of training between which a source was read: (0.9, 1) of `last 10 %`."""
    match = _STAGE.fullmatch(stage.strip())
    if match is None:
        return 0.0, 1.0
    share = float(match[3]) / 100
    if match[2] is not None:
        return float(match[2]) / 100, share
    return (0.0, share) if match[1] == "first" else (1 - share, 1.0)
