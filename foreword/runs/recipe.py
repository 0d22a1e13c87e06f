"""A recipe: every part of a run, as one frozen value that is stored as TOML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foreword.data.mixture import DataSettings
from foreword.data.packing._contract import Packing
from foreword.data.read_documents import ReadSettings
from foreword.data.write_shards import PrepareSettings
from foreword.errors import UserError
from foreword.layouts._contract import Layout
from foreword.nn.model import Architecture, Model
from foreword.nn.stack_settings import StackSettings
from foreword.objectives._contract import Objective
from foreword.runs.continuation_settings import ContinuationSettings
from foreword.settings import config, kinds
from foreword.settings.kinds import part
from foreword.text.tokenizers._contract import TokenizerKind
from foreword.train.optimizers._contract import OptimizerSettings
from foreword.train.parallel._contract import Parallelism
from foreword.train.schedules._contract import Schedule
from foreword.train.settings import TrainSettings
from foreword.types import Vocab


@dataclass(frozen=True)
class Recipe:
    """Every part of a run.

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
    """

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
            raise UserError("layout.kind: this model reads only left to right; use 'decoder'")
        if self.model.assumes_causal_mask and not self.layout.is_causal:
            raise UserError(
                "model.assumes_causal_mask=true needs a causal layout; set it to false or use "
                "layout 'decoder'"
            )
        self._require_room()
        self._require_loop()

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
        if self.model.trains_offline and not self.train.embedding_init.is_random:
            raise UserError(
                "train.embedding_init: a model that is trained offline has no first embeddings; "
                "set it to random"
            )

    def build(self, vocab: Vocab) -> Model:
        """Build the model without initialising its weights."""
        try:
            backbone = self.model.build(vocab.size)
            backbone.set_spellings(vocab)
            return Model(backbone, self.objective.heads(backbone, vocab))
        except ValueError as error:
            raise UserError(f"model.{error}") from error

    @property
    def bos_and_eos(self) -> tuple[str, str]:
        """The special tokens that the packing puts before and after each text; "" for none."""
        return self.packing.bos, self.packing.eos

    @property
    def ends_texts(self) -> bool:
        """Whether each text ends with a token that is predicted like its own."""
        return bool(self.bos_and_eos[1])

    @property
    def rows_per_step(self) -> int:
        """Number of sequences per step."""
        if self.train.batch_tokens:
            return max(1, round(self.train.batch_tokens / self.packing.length))
        return self.train.batch

    def dumps(self) -> str:
        """Return the recipe as TOML; `load_recipe` reads an equal one."""
        return config.dumps(config.to_table(self))


def load_recipe(name: str | Path, assignments: Sequence[str] = ()) -> Recipe:
    """Load a recipe by file or by the name of a shipped one, with `--set` assignments applied.

    Raises:
        UserError: there is no such recipe, or it has an error; key and file are named.
    """
    file = config.RECIPES.find(str(name))
    return config.load(Recipe, file, config.assign({}, assignments), what="a recipe")
