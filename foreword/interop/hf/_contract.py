"""The contract of a model family of `transformers`: its names for our settings and parameters.

Each file of `interop/hf/` holds one family, named by the `model_type` of its `config.json`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from foreword.data.packing._contract import Packing
from foreword.interop.hf_config import HFConfig
from foreword.layouts._contract import Layout
from foreword.nn.model import Model
from foreword.objectives._contract import Objective
from foreword.runs.same_model import resolved
from foreword.types import Vocab

Table = dict[str, Any]


class Design(Protocol):
    """The parts of a recipe that define a model; a `Recipe` is one."""

    @property
    def model(self) -> Any:
        """A kind in `models/`."""

    @property
    def objective(self) -> Objective:
        """A kind in `objectives/`."""

    @property
    def layout(self) -> Layout:
        """A kind in `layouts/`."""

    @property
    def packing(self) -> Packing:
        """A kind in `data/packing/`."""


@dataclass(frozen=True)
class SettingMap:
    """A setting under our name and theirs.

    Attributes:
        ours: the setting of `model`, with a dot for a nested one (`position.length`).
        theirs: the key in `config.json`.
        default: the value if `config.json` lacks the key.
        words: their values by ours, where they differ.
    """

    ours: str
    theirs: str
    default: Any
    words: Mapping[str, str] | None = None

    def read(self, hf_config: HFConfig) -> Any:
        """Return our value.

        Raises:
            UserError: we have no value that corresponds to theirs.
        """
        value = hf_config.get(self.theirs, self.default)
        if self.words is None:
            return value
        for our, their in self.words.items():
            if their == value:
                return our
        raise hf_config.refuse(self.theirs, ", ".join(sorted(self.words.values())))

    def write(self, value: Any) -> Any:
        """Return their value, None if they have none."""
        return value if self.words is None else self.words.get(value)


@dataclass(frozen=True)
class ParameterMap:
    """Parameters of ours and tensors of theirs that hold the same values.

    Theirs, concatenated along the first dimension, equal ours concatenated, up to a transpose,
    skipped rows, the order of rows and a number.

    Attributes:
        ours: names in our model.
        theirs: names in their file; the tensors have equal shapes.
        is_transposed: whether theirs are stored as (in, out).
        skipped: number of first rows of theirs that no text uses.
        shape: the shape of each of theirs, if its last two dimensions are one of ours.
        heads: if not 0, the number of heads by which our parameters, of equal sizes, take turns in
            theirs: the first head of each, then the second.
        offset: what theirs lack: 1 for the weights of a norm that are stored as distances from 1.
    """

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    is_transposed: bool = False
    skipped: int = 0
    shape: tuple[int, ...] | None = None
    heads: int = 0
    offset: float = 0.0

    def from_hf(self, theirs: Iterable[Tensor], rows: list[int]) -> tuple[Tensor, ...]:
        """Return our parameters; `rows` gives the number of rows of each."""
        whole = torch.cat([self._in(t) for t in theirs])[self.skipped :]
        if self.offset:
            whole = whole + self.offset
        if self.heads:
            whole = _turned(whole, self.heads, len(rows))
        return torch.split(whole, rows)

    def to_hf(self, ours: Iterable[Tensor]) -> list[Tensor]:
        """Return their tensors; skipped rows are 0."""
        whole = torch.cat(list(ours))
        if self.offset:
            whole = whole - self.offset
        if self.heads:
            whole = _turned(whole, len(self.ours), self.heads)
        if self.skipped:
            whole = torch.cat([whole.new_zeros(self.skipped, *whole.shape[1:]), whole])
        return [self._out(part).contiguous() for part in whole.chunk(len(self.theirs))]

    def _in(self, their: Tensor) -> Tensor:
        flat = their if self.shape is None else their.reshape(-1, self.shape[-2] * self.shape[-1])
        return flat.t() if self.is_transposed else flat

    def _out(self, part: Tensor) -> Tensor:
        flat = part.t() if self.is_transposed else part
        return flat if self.shape is None else flat.reshape(self.shape)


def _turned(rows: Tensor, outer: int, inner: int) -> Tensor:
    """Return rows that are ordered by `outer` and then by `inner` groups in the other order."""
    return rows.view(outer, inner, -1, *rows.shape[1:]).transpose(0, 1).flatten(0, 2)


@dataclass(frozen=True)
class PublishedHead:
    """A class of a family with a task's head, and its names for ours.

    Attributes:
        output: the prefix of the output layer.
        pooling: the state that it reads, as in the task's setting, if that has one.
        hidden_layer: the layer between state and output, as in the task's setting.
        dense: the prefix of that layer, if there is one.
        norm: the prefix of its norm, if it has one.
        output_bias: whether the outputs have a bias, or another stands for it.
        bias_before: the bias of the norm before the output layer, if that has no bias itself.
        config: keys of `config.json` that make the class compute this.
        padding_side: where texts must be padded.
        unread: tensors that only theirs has and that nothing reads, with their shapes.
        backbone: prefixes of the backbone's tensors in this class, by those of the others, if they
            differ; tensors without any are left out.
        max_length: the most tokens of texts on which it computes what ours does; None for all.
        problem: why it computes something else on longer texts.
        architecture: the class in `transformers`, if its name is not its family's and its own.
    """

    output: str
    pooling: str = "first"
    hidden_layer: str = "none"
    dense: str = ""
    norm: str = ""
    output_bias: bool = True
    bias_before: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    padding_side: str = "right"
    unread: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    backbone: Mapping[str, str] = field(default_factory=dict)
    max_length: int | None = None
    problem: str = ""
    architecture: str = ""


# Linear maps on a token's state, as most encoders name them.
TOKEN_HEADS = {"TokenClassification": PublishedHead("classifier")}
LINEAR_HEADS = {**TOKEN_HEADS, "QuestionAnswering": PublishedHead("qa_outputs")}


def map_each(
    names: Mapping[str, str],
    ours: str,
    theirs: str,
    kinds: tuple[str, ...] = ("weight", "bias"),
    **options: Any,
) -> Iterator[ParameterMap]:
    """Yield a `ParameterMap` for each line of a table and each of `kinds`.

    Args:
        names: theirs by ours, without prefix and suffix: {"output": "attn.c_proj"}.
        ours: the prefix of our names.
        theirs: the prefix of their names.
        kinds: the suffixes, "weight" and "bias".
        options: more of `ParameterMap`'s.
    """
    for our, their in names.items():
        for kind in kinds:
            yield ParameterMap(
                tuple(f"{ours}{name}.{kind}" for name in our.split()),
                tuple(f"{theirs}{name}.{kind}" for name in their.split()),
                **options,
            )


@dataclass(frozen=True)
class FamilyNames:
    """The names that all models of a family have in common.

    Attributes:
        architecture: the class in `transformers` that has our heads.
        layout: the kind of our layout.
        embedding: the name of the token embedding.
        prefix: the prefix of the backbone's tensors, which some files leave out.
        kind: the kind of our model.
        model_type: the family's name in `config.json`, if other than the file's name.
        roles: special tokens by role, if the tokenizer's files do not name them.
        subfolders: subfolders of the model's folder, each with a submodel that is published apart.
        buffers: patterns of tensors that are not parameters, or are never read.
        dropped: patterns of the tensors of heads that are not imported.
    """

    architecture: str
    layout: str
    embedding: str
    prefix: str = ""
    kind: str = "transformer"
    model_type: str = ""
    roles: Mapping[str, str] = field(default_factory=dict)
    subfolders: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        """The beginning of the names of its classes: `Bert`."""
        return re.sub(r"(For[A-Z]|LMHead).*", "", self.architecture)


@dataclass(frozen=True)
class ConfigKeys:
    """The keys of `config.json` that are read and written alike in all models of a family.

    Attributes:
        maps: the settings that have a key.
        fixed: settings of ours that every model of the family has.
        supported: keys that are accepted at these values only; None accepts any value that is not
            true.
        ignored: keys without effect on what is computed.
        dropout: the keys of dropout, if theirs computes what ours does in training mode only;
            then the logits are checked in training mode, with these at 0.
    """

    maps: tuple[SettingMap, ...]
    fixed: Mapping[str, Any]
    supported: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    dropout: tuple[str, ...] = ()


@dataclass(frozen=True)
class TensorMaps:
    """The tensors of a file and our parameters.

    Attributes:
        maps: the mapping of each of our parameters to their tensors.
        tied: tied tensors that a file may hold twice: the second name by the first.
        copies: tensors that only they have, each with the one it is written as a copy of. A file
            may hold other values there; then `FamilyNames.dropped` names them.
        zeros: tensors that only they have and that are all 0, with their shapes.
    """

    maps: tuple[ParameterMap, ...]
    tied: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    zeros: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Differences:
    """Where `transformers` computes something else than our model.

    Attributes:
        notes: remarks for the user.
        max_length: the most tokens of texts on which both compute the same; None for all texts.
    """

    notes: tuple[str, ...] = ()
    max_length: int | None = None


class Family(ABC):
    """A model family of `transformers`; as a kind it has no settings.

    Attributes:
        names: the names that all its models have in common.
        keys: the keys of `config.json` that are read and written alike in all of them.
    """

    names: ClassVar[FamilyNames]
    keys: ClassVar[ConfigKeys]

    def model(self, hf_config: HFConfig, weights: Mapping[str, Tensor]) -> Table:
        """Return the table `[model]` of a recipe.

        Raises:
            UserError: a value is not supported.
        """
        table: Table = {"kind": self.names.kind}
        for key, fixed in self.keys.fixed.items():
            _put(table, key, fixed)
        for name in self.keys.maps:
            if (value := name.read(hf_config)) is not None:
                _put(table, name.ours, value)
        return table

    @abstractmethod
    def objective(self, weights: Mapping[str, Tensor], models: Mapping[str, Table]) -> Table:
        """Return the table `[objective]` that gives the model the heads in the file.

        Args:
            weights: the tensors of the file.
            models: the tables `[model]` of the subfolders that exist, and of the model under "".
        """

    @abstractmethod
    def packing(self, table: Table, weights: Mapping[str, Tensor]) -> Table:
        """Return the table `[packing]` that wraps texts as in the family's training.

        Args:
            table: the table `[model]`.
            weights: the tensors of the file, which show its heads.
        """

    def architecture_of(self, design: Design) -> str:
        """Return the name of the class that has the heads of `design`."""
        return self.names.architecture

    def bos_and_eos(self, design: Design) -> tuple[str, str]:
        """Return the special tokens before and after an input text, "" for none."""
        return design.packing.bos, design.packing.eos

    def describe(self, design: Design, vocab: Vocab) -> Table:
        """Return the keys of `config.json` that define the model."""
        table = resolved(design.model)
        values = {name.theirs: name.write(_get(table, name.ours)) for name in self.keys.maps}
        return {key: value for key, value in values.items() if value is not None}

    def folders(self, model: Model, design: Design) -> Mapping[str, tuple[Model, Design]]:
        """Return the parts to write to each folder: the model under "", others by subfolder."""
        return {"": (model, design)}

    @abstractmethod
    def tensors(self, design: Design, vocab: Vocab) -> TensorMaps:
        """Return the tensors of a file of this design."""

    def heads(self, design: Design) -> Mapping[str, PublishedHead]:
        """Return the heads of fine-tuned models that compute what ours do.

        They are named by their class without its family: `TokenClassification`.
        """
        return {}

    def differences(self, design: Design) -> Differences:
        """Return where `transformers` computes something else."""
        return Differences()


def published_head(family: Family, design: Design, auto_class: str) -> PublishedHead | None:
    """Return the class with a task's head; None if there is none that computes what ours does.

    Args:
        family: the family.
        design: the design.
        auto_class: the class without its family: `TokenClassification`.
    """
    head = family.heads(design).get(auto_class)
    name = f"{family.names.stem}For{auto_class}"
    return head and replace(head, architecture=head.architecture or name)


def _put(table: Table, name: str, value: Any) -> None:
    *path, last = name.split(".")
    for part in path:
        table = table.setdefault(part, {})
    table[last] = value


def _get(table: Table, name: str) -> Any:
    value: Any = table
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
