"""What the contract tests run on: a vocabulary, rows, and every objective, layout and model that
go together. A new file in one of these folders is found here without being named.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foreword import kinds
from foreword.data.rng import RowRng
from foreword.data.rows import positions_within
from foreword.errors import UserError
from foreword.nn.init import initialise
from foreword.nn.model import Model
from foreword.text import special
from foreword.types import Array, Batch, Loss, Rows, Vocab

from ..readings import reading

SEED = 5
FIRST = len(special.ALL)  # the first ordinary id
SIZE = FIRST + 40


def vocab() -> Vocab:
    """As Foreword's tokenizers have it: special tokens first; every other ordinary id is a word."""
    ids = np.arange(SIZE)
    return Vocab(
        size=SIZE,
        special={name: n for n, name in enumerate(special.NAMES)},
        sentinels=np.arange(len(special.NAMES), FIRST),
        is_special=ids < FIRST,
        starts_word=(ids >= FIRST) & (ids % 2 == 0),
    )


def rows(documents: list[list[int]], seed: int = 1, first_number: int = 100) -> Rows:
    """Rows of ordinary ids, each row's documents of the lengths given, padded behind.

    Each document ends with `</s>`, and is a pair of two halves, labelled in turn 0 and 1, where
    it is not too short.
    """
    rng = np.random.default_rng(seed)
    length = max(map(sum, documents))
    numbers = np.full((len(documents), length), -1, dtype=np.int64)
    ids = np.zeros((len(documents), length), dtype=np.int64)
    for row, lengths in enumerate(documents):
        inside = np.repeat(np.arange(len(lengths)), lengths)
        numbers[row, : len(inside)] = inside
        ids[row, : len(inside)] = rng.integers(FIRST, SIZE, len(inside))
        ids[row, np.cumsum(lengths) - 1] = special.ALL.index("</s>")
    order = np.arange(first_number, first_number + len(documents))
    positions = positions_within(numbers)
    sizes = np.stack([(numbers == n).sum(1) for n in range(numbers.max() + 1)], axis=1)
    size = np.where(numbers < 0, 0, np.take_along_axis(sizes, np.maximum(numbers, 0), axis=1))
    segments = np.where(size, positions >= (size + 1) // 2, 0).astype(np.int64)
    classes = (numbers + np.arange(len(numbers))[:, None]) % 2
    labels = np.where((positions == 0) & (size > 3), classes, -1)
    return Rows(ids, numbers, positions, order, segments, labels)


def take(many: Rows, which: Any) -> Rows:
    """Some of the rows."""
    values = [getattr(many, f.name) for f in fields(many)]
    return Rows(*(None if value is None else value[which] for value in values))


@dataclass(frozen=True)
class Case:
    """An objective, a layout and a model that go together, by their kinds."""

    objective: str
    layout: str
    model: str

    def __str__(self) -> str:
        return f"{self.objective}-{self.layout}-{self.model}"

    @property
    def is_count_based(self) -> bool:
        """Whether its model is fitted without gradients."""
        counted: bool = kinds.load("models", self.model).is_count_based
        return counted

    def batch(self, of: Rows, **settings: Any) -> Batch:
        """The rows as this objective and layout make them, in tensors."""
        objective = kinds.load("objectives", self.objective)(**settings)
        example = objective.corrupt(of, RowRng(SEED, of.numbers), vocab())
        layout = kinds.load("layouts", self.layout)()
        return layout.arrange(example, vocab()).to("cpu")

    def settings(self, position: str = "learned") -> Any:
        """The settings of a tiny model for this layout."""
        settings = tiny(self.model, position)
        return replace(settings, two_streams=True) if self.layout == "two_streams" else settings

    def build(self, position: str = "learned") -> Model:
        """A tiny model with this objective's heads, without dropout."""
        backbone = self.settings(position).build(SIZE)
        heads = kinds.load("objectives", self.objective)().heads(backbone, vocab())
        model = Model(backbone, heads)
        if self.is_count_based:
            fit(model)
        else:
            initialise(model, SEED)
        return model

    def loss(self, model: Model, batch: Batch) -> Loss:
        """The objective's loss."""
        return kinds.load("objectives", self.objective)().loss(model, batch)


def fit(model: Model) -> None:
    """Fits a model that has no gradients to random texts, special tokens taken for words."""
    texts = list(rows([[24]] * 100, seed=3).ids)
    known = replace(vocab(), is_special=np.zeros(SIZE, dtype=bool))
    with TemporaryDirectory() as folder:
        model.backbone.fit(reading(texts, known, Path(folder)))


def tiny(model: str, position: str = "learned") -> Any:
    """The settings of a tiny model of this kind."""
    cls = kinds.load("models", model)
    wanted = {
        "d_model": 24,
        "layers": 2,
        "heads": 2,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "init_std": 0.2,  # far from uniform, so that differences show
        "position": kinds.load("nn/positions", position)(),
    }
    known = {f.name for f in fields(cls)}
    return cls(**{name: value for name, value in wanted.items() if name in known})


def find_cases() -> list[Case]:
    """All that fit: a layout refuses an objective that it has no place for."""
    found = []
    for objective in kinds.names("objectives"):
        for layout in kinds.names("layouts"):
            for model in kinds.names("models"):
                case = Case(objective, layout, model)
                if len(_directions(case)) > 1:
                    continue  # two directions apart are a thing of all three parts, or of none
                try:
                    batch = case.batch(rows([[12]]))
                except UserError:
                    continue
                reads_source = kinds.load("models", model).reads_source
                if not kinds.load("models", model).reads_ahead and layout != "decoder":
                    continue
                if batch.queries is not None and model != "transformer":
                    continue  # no other has a second stream
                if case.is_count_based and objective != "causal":
                    continue  # counts are of texts as they are
                if (batch.source is not None) == reads_source:
                    found.append(case)
    return found


def _directions(case: Case) -> set[bool]:
    """Of each part of the case, whether it is of two directions that are kept apart."""
    components = {"objectives": case.objective, "layouts": case.layout, "models": case.model}
    loaded = [kinds.load(folder, name) for folder, name in components.items()]
    return {getattr(part, "predicts_both_directions", False) for part in loaded}


CASES = find_cases()
TRAINED = [case for case in CASES if not case.is_count_based]  # by gradients


def logits(model: Model, batch: Batch) -> Tensor:
    """Scores at every place, or every query: over the vocabulary, or the classes of pairs where
    no tokens are predicted; (batch, length, vocab or classes).
    """
    head = model.heads["token"] if "token" in model.heads else model.heads["pair"]
    with torch.no_grad():
        is_apart = "generator" in model.heads  # what fills blanks
        reader = model.heads["generator"] if is_apart else model.backbone
        scores: Tensor = head(reader(batch).states)
    return scores


def is_scored(batch: Batch) -> Array:
    """Where something is predicted, a token or else a label; bool of the targets' shape."""
    is_token = np.asarray(batch.weights > 0)
    return is_token if is_token.any() or batch.labels is None else np.asarray(batch.labels >= 0)
