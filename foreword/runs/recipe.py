"""A recipe: every part of a run, as one frozen value that is stored as TOML."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from foreword.data.mixture import DataSettings, stages_of
from foreword.data.packing._contract import Packing
from foreword.data.read_documents import ReadSettings
from foreword.data.write_shards import PrepareSettings
from foreword.errors import UserError, nearest
from foreword.layouts._contract import Layout
from foreword.nn.model import Architecture, Backbone, Model
from foreword.nn.stack_settings import StackSettings
from foreword.objectives._contract import Objective
from foreword.runs.continuation_settings import ContinuationSettings
from foreword.settings import config, kinds
from foreword.settings.config import Table
from foreword.settings.kinds import part
from foreword.settings.ranges import (
    OpenShare,
    Ranged,
    at_share,
    curves_in,
    has_curves,
    is_curve,
)
from foreword.text.tokenizers._contract import TokenizerKind
from foreword.train.optimizers._contract import OptimizerSettings
from foreword.train.parallel._contract import Parallelism
from foreword.train.schedules._contract import Schedule
from foreword.train.settings import TrainSettings
from foreword.types import Vocab

VALUES_OF_CURVE = 20  # one after the other along a curve
# What a curve may change, and what a stage may.
CURVED = r"objective\..+|model\.(\w+_)?dropout|optimizer\.decay"
CURVED += r"|data\.temperature|data\.sources\[\d+\]\.weight"
STAGED = re.compile(rf"(objective|layout)(\..+)?|{CURVED}")
MAY_CHANGE = "objective, layout, model.*dropout, optimizer.decay and weights of data.sources"


@dataclass(frozen=True)
class StageSettings(Ranged):
    """A stage of training before the last, which is the recipe itself, and what differs in it.

    Attributes:
        share: its share of the budget.
        objective: settings of the recipe's objective, or another kind.
        layout: likewise.
        model: its dropout.
        optimizer: its weight decay.
        data: the temperature; the weights of sources, by name: `sources.web.weight`.
    """

    share: OpenShare
    objective: dict[str, Any] | str | None = None
    layout: dict[str, Any] | str | None = None
    model: dict[str, Any] | None = None
    optimizer: dict[str, Any] | None = None
    data: dict[str, Any] | None = None

    def changes(self, sources: Sequence[str]) -> Table:
        """Return what differs, as `config.merge` takes it.

        Args:
            sources: the names of the recipe's sources.

        Raises:
            UserError: there is no such source, or a stage cannot change it.
        """
        table = {name: value for name, value in config.to_table(self).items() if name != "share"}
        by_name = (self.data or {}).get("sources")
        if isinstance(by_name, Mapping):
            for name in by_name:
                if name not in sources:
                    raise UserError(f"data.sources.{name}: no such source{nearest(name, sources)}")
            numbered = {f"[{sources.index(name)}]": one for name, one in by_name.items()}
            table["data"] = {**table["data"], "sources": numbered}
        for key in _leaves(table):
            if not STAGED.fullmatch(key):
                raise UserError(f"{key}: a stage can change {MAY_CHANGE} alone")
        return table


def _leaves(value: Any, where: str = "") -> Iterator[str]:
    """Yield the names of all settings in a table: `data.sources[0].weight`."""
    if not isinstance(value, Mapping) or is_curve(value):
        yield where
        return
    for key, item in value.items():
        yield from _leaves(item, f"{where}.{key}".lstrip(".").replace(".[", "["))


@dataclass(frozen=True)
class Segment:
    """A part of training in which nothing changes: a stage, or one value of its curves.

    Attributes:
        begin: the share of the budget at which it begins.
        stage: the number of its stage, from 0.
        recipe: what is trained, without stages and curves.
    """

    begin: float
    stage: int
    recipe: Recipe


@dataclass(frozen=True)
class Recipe:
    """Every part of a run.

    Numbers of the objective, dropout, weight decay and weights of sources may change while the
    model trains, `{ from = 0.3, to = 0.05 }`.

    Attributes:
        description: one line.
        family: name of the model family in the literature (`BERT`), the same for all sizes.
        paper: its paper (`Devlin et al. 2019`).
        tokenizer: a kind in `text/tokenizers/`.
        data: the sources of the text and how they are mixed; none if `--data` names the text.
        read: how files become documents.
        prepare: how documents become token shards.
        packing: a kind in `data/packing/`.
        model: a kind in `models/`.
        objective: a kind in `objectives/`.
        layout: a kind in `layouts/`.
        optimizer: a kind in `train/optimizers/`.
        schedule: a kind in `train/schedules/`.
        train: budget, batch, precision.
        parallel: a kind in `train/parallel/`, for several processes.
        probes: kinds in `probes/`, with which the model is measured at each evaluation.
        continuation: with `--from`, what comes from the model and its training; the recipe that a
            run keeps has it written out.
        stages: what training does first; the recipe as it stands is the last stage. A curve takes
            the stage that it is written in, and the recipe's the last; before it is its `from`.
    """

    CHANGING: ClassVar[re.Pattern[str]] = re.compile(CURVED)

    model: Architecture = part("models")
    objective: Objective = part("objectives")
    layout: Layout = part("layouts")
    description: str = ""
    family: str = ""
    paper: str = ""
    tokenizer: TokenizerKind = part("text/tokenizers", "wordpiece")
    data: DataSettings = field(default_factory=DataSettings)
    read: ReadSettings = field(default_factory=ReadSettings)
    prepare: PrepareSettings = field(default_factory=PrepareSettings)
    packing: Packing = part("data/packing", "documents")
    optimizer: OptimizerSettings = part("train/optimizers", "adamw")
    schedule: Schedule = part("train/schedules", "linear")
    train: TrainSettings = field(default_factory=TrainSettings)
    parallel: Parallelism = part("train/parallel", "auto")
    probes: tuple[Any, ...] = field(default=(), metadata={"part": kinds.Part("probes")})
    continuation: ContinuationSettings | None = None
    stages: tuple[StageSettings, ...] | None = None

    def __post_init__(self) -> None:
        # Lengths: rows, positions of the model, positions that its attention projects.
        self._require_positions()
        length, exact = self.packing.length, self.model.required_length
        if exact not in (None, length):
            raise UserError(
                f"packing.length: rows of {length} tokens, but model.attention projects rows of "
                f"exactly {exact}; set model.attention.length={length}"
            )
        # Order: a memory requires consecutive rows.
        if self.model.has_memory and not self.packing.is_contiguous:
            raise UserError(
                "packing.kind: this model carries memory between rows; use packing 'stream'"
            )
        # Architecture: streams, sides and directions are those of the layout and the objective.
        if self.layout.is_two_streams != self.model.two_streams:
            raise UserError(
                "layout.kind: layout 'two_streams' requires model.two_streams=true, and vice versa"
            )
        if self.model.reads_source != self.layout.has_source:
            raise UserError(
                "layout.kind: layout 'encoder_decoder' requires model.kind 'encoder_decoder' or "
                "'seq2seq', and vice versa"
            )
        directions = (
            self.model.predicts_both_directions,
            self.objective.predicts.both_directions,
            self.layout.predicts_both_directions,
        )
        if len({*directions}) > 1:
            raise UserError(
                "layout.kind: layout 'bidirectional', objective 'bidirectional' and model.kind "
                "'elmo' each require the other two"
            )
        if self.objective.predicts.form == "next_and_in_place" and not self.packing.bos:
            raise UserError(
                "packing.bos: objective 'hybrid' predicts each token at the one before it, so the "
                "first of a text requires one; set packing.bos"
            )
        if not self.model.reads_ahead and not self.layout.is_causal:
            name = kinds.name_of(getattr(self.model, "attention", self.model))
            raise UserError(f"layout.kind: '{name}' reads only left to right; use 'decoder'")
        if self.model.assumes_causal_mask and not self.layout.is_causal:
            raise UserError(
                "model.assumes_causal_mask=true needs a causal layout; set it to false or use "
                "layout 'decoder'"
            )
        self._require_room()
        self._require_loop()
        if self.changes:
            self._require_stages()

    @staticmethod
    def in_todays_form(table: Table) -> Table:
        """Return a stored table, whose sources may have a `stage` each, as of today."""
        data, stages = stages_of(table.get("data", {}))
        return {**table, "data": data, "stages": stages} if stages else {**table, "data": data}

    @property
    def changes(self) -> bool:
        """Whether anything changes while the model trains, besides the learning rate."""
        return bool(self.stages) or has_curves(self)

    def at(self, share: float) -> Recipe:
        """Return the recipe without stages, after a share of the way of its curves."""
        made: Recipe = at_share(self, share, stages=None) if self.changes else self
        return made

    def in_stages(self) -> list[tuple[float, Recipe]]:
        """Return the share of the budget and the recipe of each stage, the recipe itself last.

        Raises:
            UserError: a stage is impossible; it is named.
        """
        if not self.stages:
            return [(1.0, self)]
        table, sources = config.to_table(self.at(0.0)), [s.name for s in self.data.sources]
        staged = []
        for number, stage in enumerate(self.stages):
            try:
                merged = config.merge(table, stage.changes(sources))
                staged.append((stage.share, config.build(Recipe, merged)))
            except UserError as error:
                raise UserError(f"stages[{number}].{error}") from error
        rest = 1 - math.fsum(share for share, _ in staged)
        if rest < 1e-9:
            raise UserError(
                "stages: their shares leave nothing; the recipe itself is the last stage, so give "
                f"them less than 1, not {1 - rest:g}"
            )
        return [*staged, (rest, replace(self, stages=None))]

    def segments(self) -> list[Segment]:
        """Return the parts of training in which nothing changes, in order."""
        segments, begin = list[Segment](), 0.0
        for stage, (share, recipe) in enumerate(self.in_stages()):
            values = VALUES_OF_CURVE if recipe.changes else 1
            for n in range(values):
                value = recipe.at(n / (values - 1) if n else float(values == 1))
                segments.append(Segment(begin + share * n / values, stage, value))
            begin += share
        return segments

    def extremes(self) -> list[Recipe]:
        """Return what is trained at the beginning and at the end of each stage."""
        ends = [recipe.at(end) for _, recipe in self.in_stages() for end in (0.0, 1.0)]
        return [recipe for n, recipe in enumerate(ends) if recipe not in ends[:n]]

    def _require_stages(self) -> None:
        """Raise a UserError if a stage, or an end of a curve, is impossible."""
        for number, (_, recipe) in enumerate(self.in_stages()):
            try:
                recipe.at(0.0)
            except UserError as error:
                is_own = number == len(self.stages or ())
                raise UserError(f"{'' if is_own else f'stages[{number}].'}{error}") from error

    def max_sequence(self, length: int) -> int:
        """Return the maximum length of a sequence, with rows of `length` tokens.

        Source and target of an objective can together be longer than their text.
        """
        text = length - self.packing.length + self.packing.max_text
        return max(length, self.layout.max_length(self.objective.max_lengths(length, text)))

    def rows_in_words(self) -> str:
        """Return the length of rows for messages, and of sequences if these are longer."""
        length = self.packing.length
        words, longest = f"rows of {length} tokens", self.max_sequence(length)
        if longest == length:
            return words
        objective, layout = kinds.name_of(self.objective), kinds.name_of(self.layout)
        return f"{words} become up to {longest} with objective '{objective}' in layout '{layout}'"

    def _require_positions(self) -> None:
        """Raise a UserError if a sequence can be longer than the model's positions."""
        limit, longest = self.model.limit, self.max_sequence(self.packing.length)
        if limit is None or longest <= limit:
            return
        by_position = isinstance(self.model, StackSettings) and self.model.position.limit == limit
        where = "position" if by_position else "attention"
        raise UserError(
            f"packing.length: {self.rows_in_words()}, but model.{where} has {limit} positions; "
            f"set model.{where}.length={longest}"
        )

    def _require_room(self) -> None:
        """Raise a UserError if the objective requires longer rows."""
        try:
            self.objective.require_room(self.packing.length)
        except ValueError as error:
            raise UserError(f"objective.{error}") from error

    def _require_loop(self) -> None:
        """Raise a UserError if settings of the loop are set for a model trained outside it."""
        if self.data.sources and self.model.trains_offline:
            raise UserError(
                "data.sources: a model that is trained offline reads all of its text, without "
                "weights; name the text with --data"
            )
        if self.model.trains_offline and self.changes:
            raise UserError(
                "stages: a model that is trained offline has no steps at which anything may change"
            )
        if self.model.trains_offline and not self.train.embedding_init.is_random:
            raise UserError(
                "train.embedding_init: a model that is trained offline has no first embeddings; "
                "set it to random"
            )

    def build(self, vocab: Vocab) -> Model:
        """Build the model without initialising its weights, with the heads of all stages.

        Raises:
            UserError: parts of the recipe do not fit.
        """
        try:
            backbone = self.at(1.0).model.build(vocab.size)
            backbone.set_spellings(vocab)
            if not self.changes:
                return Model(backbone, self.objective.heads(backbone, vocab))
            heads = self._heads(backbone, vocab)
        except ValueError as error:
            raise UserError(f"model.{error}") from error
        return Model(backbone, heads[-1], heads[:-1])

    def _heads(self, backbone: Backbone, vocab: Vocab) -> list[nn.ModuleDict]:
        """Return the heads of each stage; heads of one name and shape are the same.

        Raises:
            UserError: a curve would change the heads.
        """
        known: dict[Any, nn.Module] = {}
        by_stage = []
        for _, recipe in reversed(self.in_stages()):  # the last stage's own come first
            first, heads = (recipe.at(end).objective.heads(backbone, vocab) for end in (0.0, 1.0))
            if _shapes(first) != _shapes(heads):
                names = ", ".join(curves_in(recipe.objective, "objective"))
                raise UserError(f"{names}: changes the shape of a head; give one number")
            for name, head in heads.items():
                heads[name] = known.setdefault((name, _shapes(head)), head)
            by_stage.append(heads)
        return by_stage[::-1]

    @property
    def bos_and_eos(self) -> tuple[str, str]:
        """The special tokens that the packing puts before and after each text; "" for none."""
        return self.packing.bos, self.packing.eos

    @property
    def ends_texts(self) -> bool:
        """Whether each text ends with a token that is predicted like its own."""
        eos = self.bos_and_eos[1]
        return bool(eos) and (not self.objective.predicts.any_order or self.objective.end == eos)

    @property
    def rows_per_step(self) -> int:
        """Number of sequences per step."""
        if self.train.batch_tokens:
            return max(1, round(self.train.batch_tokens / self.packing.length))
        return self.train.batch

    def dumps(self) -> str:
        """Return the recipe as TOML; `load_recipe` reads an equal one."""
        return config.dumps(config.to_table(self))


def _shapes(module: nn.Module) -> tuple[Any, ...]:
    """Return the classes, names and shapes in a module."""
    parameters = ((name, *parameter.shape) for name, parameter in module.named_parameters())
    return (*map(type, module.modules()), *parameters)


def load_recipe(name: str | Path, assignments: Sequence[str] = ()) -> Recipe:
    """Load a recipe by file or by the name of a shipped one, with `--set` assignments applied.

    Raises:
        UserError: there is no such recipe, or it has an error; key and file are named.
    """
    file = config.RECIPES.find(str(name))
    return config.load(Recipe, file, config.assign({}, assignments), what="a recipe")
