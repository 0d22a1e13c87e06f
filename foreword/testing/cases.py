"""Inputs of contract checks: a vocabulary, rows, and objectives with layouts and models that fit.

A new file in one of these folders, or in an available plug-in, is found without being named.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from foreword.data.rng import RowRng
from foreword.data.rows import positions_within
from foreword.errors import UserError
from foreword.nn.init import initialise
from foreword.nn.model import Model
from foreword.objectives._contract import Objective
from foreword.settings import kinds
from foreword.text import special
from foreword.types import Array, Batch, Loss, PairLabels, Queries, Rows, Vocab

SEED = 5
FIRST = len(special.ALL)  # the first ordinary id
SIZE = FIRST + 40


def vocab() -> Vocab:
    """Return a vocabulary: special tokens first; every second ordinary id begins a word."""
    ids = np.arange(SIZE)
    return Vocab(
        size=SIZE,
        special={name: n for n, name in enumerate(special.NAMES)},
        sentinels=np.arange(len(special.NAMES), FIRST),
        is_special=ids < FIRST,
        starts_word=(ids >= FIRST) & (ids % 2 == 0),
    )


def rows(documents: list[list[int]], seed: int = 1, first_number: int = 100) -> Rows:
    """Return rows of ordinary ids with documents of these lengths, padded at the end.

    Each document ends with `</s>`, and, unless it is too short, is a pair of two halves, labelled 0
    and 1 in turn.
    """
    # Documents of random ids.
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
    # Halves and labels of each document.
    sizes = np.stack([(numbers == n).sum(1) for n in range(numbers.max() + 1)], axis=1)
    size = np.where(numbers < 0, 0, np.take_along_axis(sizes, np.maximum(numbers, 0), axis=1))
    segments = np.where(size, positions >= (size + 1) // 2, 0).astype(np.int64)
    classes = (numbers + np.arange(len(numbers))[:, None]) % 2
    labels = np.where((positions == 0) & (size > 3), classes, -1)
    return Rows(ids, numbers, positions, order, segments, (PairLabels(labels),))


def select_rows(many: Rows, which: Any) -> Rows:
    """Return some of the rows."""

    def select(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(select, value))
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{f.name: select(getattr(value, f.name)) for f in fields(value)})
        return None if value is None else value[which]

    chosen: Rows = select(many)
    return chosen


@dataclass(frozen=True)
class Case:
    """An objective with a layout and a model that fit together.

    Attributes:
        objective: the name of the objective's kind.
        layout: the name of the layout's kind.
        model: the name of the model's kind.
        settings: the objective; the kind with default settings if None.
    """

    objective: str
    layout: str
    model: str
    settings: Objective | None = None

    def __str__(self) -> str:
        return f"{self.objective}-{self.layout}-{self.model}"

    @property
    def instance(self) -> Objective:
        """The objective itself."""
        if self.settings is not None:
            return self.settings
        default: Objective = kinds.load("objectives", self.objective)()
        return default

    @property
    def is_count_based(self) -> bool:
        """Whether the model is trained without gradients."""
        count_based: bool = kinds.load("models", self.model).is_count_based
        return count_based

    def batch(self, rows: Rows, **settings: Any) -> Batch:
        """Return the batch that this objective and layout make of the rows, as tensors."""
        example = replace(cast(Any, self.instance), **settings).corrupt(
            rows, RowRng(SEED, rows.numbers), vocab()
        )
        layout = kinds.load("layouts", self.layout)()
        return cast(Batch, layout.arrange(example, vocab()).to("cpu"))

    def model_settings(self, position: str = "learned") -> Any:
        """Return the settings of a tiny model for this layout."""
        settings = tiny(self.model, position)
        is_two_streams = kinds.load("layouts", self.layout).is_two_streams
        return replace(settings, two_streams=True) if is_two_streams else settings

    def build(self, position: str = "learned") -> Model:
        """Return a tiny model with this objective's heads, without dropout."""
        backbone = self.model_settings(position).build(SIZE)
        model = Model(backbone, self.instance.heads(backbone, vocab()))
        if not self.is_count_based:
            initialise(model, SEED)
        return model

    def loss(self, model: Model, batch: Batch) -> Loss:
        """Return the objective's loss."""
        return self.instance.loss(model, batch)


def tiny(model: str, position: str = "learned") -> Any:
    """Return the settings of a tiny model of this kind."""
    cls = kinds.load("models", model)
    settings = {
        "d_model": 24,
        "layers": 2,
        "heads": 2,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "init_std": 0.2,  # far from uniform, so that differences show
        "position": kinds.load("nn/positions", position)(),
    }
    names = {f.name for f in fields(cls)}
    return cls(**{name: value for name, value in settings.items() if name in names})


def find_cases(objective: Objective | None = None) -> list[Case]:
    """Return the cases of an objective, or of every kind, whose layout and model accept it."""
    names = kinds.names("objectives") if objective is None else [kinds.name_of(objective)]
    models = kinds.names("models")
    cases = []
    for name in names:
        for layout in kinds.names("layouts"):
            # What objective and layout make of a row is the same for all models.
            try:
                batch = Case(name, layout, models[0], objective).batch(rows([[12]]))
            except UserError:
                continue
            every = [Case(name, layout, model, objective) for model in models]
            cases += [case for case in every if _fits(case, batch)]
    return cases


def _fits(case: Case, batch: Batch) -> bool:
    model = kinds.load("models", case.model)
    if len(_directions(case)) > 1:
        return False  # all three predict both directions, or none does
    if not model.reads_ahead and not kinds.load("layouts", case.layout).is_causal:
        return False
    if batch.part(Queries) is not None and case.model != "transformer":
        return False  # other models have no query stream
    if case.is_count_based and case.objective != "causal":
        return False  # counts are those of uncorrupted text
    return bool((batch.source is not None) == model.reads_source)


def _directions(case: Case) -> set[bool]:
    """Return whether objective, layout and model predict both directions, all answers in a set."""
    folders = {"layouts": case.layout, "models": case.model}
    parts = [kinds.load(folder, name) for folder, name in folders.items()]
    return {case.instance.predicts.both_directions, *(p.predicts_both_directions for p in parts)}


def logits(model: Model, batch: Batch) -> Tensor:
    """Return the logits at every position or query, (batch, length, vocab or classes).

    They are those of tokens, or of the classes of pairs if no tokens are predicted.
    """
    head = model.heads["token"] if "token" in model.heads else model.heads["pair"]
    with torch.no_grad():
        has_generator = "generator" in model.heads  # which then predicts the masked tokens
        backbone = model.heads["generator"] if has_generator else model.backbone
        scores: Tensor = head(backbone(batch).states)
    return scores


def is_scored(batch: Batch) -> Array:
    """Return where a token, or otherwise a label, is predicted; bool of the targets' shape."""
    is_token = np.asarray(batch.weights > 0)
    pairs = batch.part(PairLabels)
    return is_token if is_token.any() or pairs is None else np.asarray(pairs.labels >= 0)
