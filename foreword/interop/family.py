"""What a family of models elsewhere is: its names for our settings and for our parameters.

A file of `interop/hf/` holds one, under the name that `config.json` gives as `model_type`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from foreword.errors import UserError
from foreword.interop.hf_config import HFConfig
from foreword.nn.model import Model
from foreword.runs.same_model import resolved
from foreword.types import Vocab

Table = dict[str, Any]


class Design(Protocol):
    """What a recipe and a model made elsewhere have in common; a `Recipe` is one."""

    @property
    def model(self) -> Any:
        """A kind in `models/`."""

    @property
    def objective(self) -> Any:
        """A kind in `objectives/`."""

    @property
    def layout(self) -> Any:
        """A kind in `layouts/`."""

    @property
    def packing(self) -> Any:
        """A kind in `data/packing/`."""


@dataclass(frozen=True)
class SettingMap:
    """A setting by both its names.

    Attributes:
        ours: of `model`, with a dot for a setting within one (`position.length`).
        theirs: the key in `config.json`.
        default: what it is where `config.json` does not say.
        words: their values by ours, where they differ.
    """

    ours: str
    theirs: str
    default: Any
    words: Mapping[str, str] | None = None

    def read(self, hf_config: HFConfig) -> Any:
        """Our value.

        Raises:
            UserError: theirs is none that we have.
        """
        value = hf_config.take(self.theirs, self.default)
        if self.words is None:
            return value
        for our, their in self.words.items():
            if their == value:
                return our
        raise hf_config.refuse(self.theirs, ", ".join(sorted(self.words.values())))

    def write(self, value: Any) -> Any:
        """Their value; None where they have none."""
        return value if self.words is None else self.words.get(value)


@dataclass(frozen=True)
class ParameterMap:
    """Parameters of ours and of theirs that hold the same numbers.

    Theirs below one another are ours below one another, once transposed and cut.

    Attributes:
        ours: names in our model.
        theirs: names in their file, tensors of equal shape.
        is_transposed: theirs are stored (in, out).
        skipped: first rows of theirs that no text reaches.
        shape: of each of theirs, where the last two dimensions are one of ours.
    """

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    is_transposed: bool = False
    skipped: int = 0
    shape: tuple[int, ...] | None = None

    def from_hf(self, theirs: Iterable[Tensor], rows: list[int]) -> tuple[Tensor, ...]:
        """Ours, of so many `rows` each."""
        return torch.split(torch.cat([self._in(t) for t in theirs])[self.skipped :], rows)

    def to_hf(self, ours: Iterable[Tensor]) -> list[Tensor]:
        """Theirs; rows that no text reaches are 0."""
        whole = torch.cat(list(ours))
        if self.skipped:
            whole = torch.cat([whole.new_zeros(self.skipped, *whole.shape[1:]), whole])
        return [self._out(part).contiguous() for part in whole.chunk(len(self.theirs))]

    def _in(self, their: Tensor) -> Tensor:
        flat = their if self.shape is None else their.reshape(-1, self.shape[-2] * self.shape[-1])
        return flat.t() if self.is_transposed else flat

    def _out(self, part: Tensor) -> Tensor:
        flat = part.t() if self.is_transposed else part
        return flat if self.shape is None else flat.reshape(self.shape)


def map_each(
    names: Mapping[str, str],
    ours: str,
    theirs: str,
    kinds: tuple[str, ...] = ("weight", "bias"),
    *,
    is_transposed: bool = False,
) -> Iterator[ParameterMap]:
    """Yield a `ParameterMap` for each line of a table and each of `kinds`.

    Args:
        names: theirs by ours, without what comes before and after: {"output": "attn.c_proj"}.
        ours: what stands before ours.
        theirs: what stands before theirs.
        kinds: what comes after the names.
        is_transposed: as in `ParameterMap`.
    """
    for our, their in names.items():
        for kind in kinds:
            yield ParameterMap(
                tuple(f"{ours}{name}.{kind}" for name in our.split()),
                tuple(f"{theirs}{name}.{kind}" for name in their.split()),
                is_transposed,
            )


class Family(ABC):
    """One family of `transformers`; the settings of a kind are none.

    Attributes:
        architecture: the class that has the heads we have.
        model_type: its name in `config.json`, where it is not the file's.
        kind: of our model.
        layout: of our layout.
        prefix: what stands before the names of the body, which some files leave out.
        embedding: name of the table of tokens.
        names: the settings that `config.json` and we both name.
        fixed: settings of ours that every model of the family has.
        neutral: keys that we know at these values alone; where a value is None, at any that is
            not true.
        idle: keys without effect on what is computed.
        still: the keys of dropout, where theirs computes in training alone what ours always does;
            then it is checked in training, with these at 0.
        beside: folders in the model's own, each with a part of it that is published apart.
        roles: special tokens by role, where the tokenizer does not say.
    """

    architecture: ClassVar[str]
    model_type: ClassVar[str] = ""
    kind: ClassVar[str] = "transformer"
    layout: ClassVar[str]
    prefix: ClassVar[str] = ""
    embedding: ClassVar[str]
    names: ClassVar[tuple[SettingMap, ...]]
    fixed: ClassVar[Mapping[str, Any]]
    neutral: ClassVar[Mapping[str, Any]] = {}
    idle: ClassVar[tuple[str, ...]] = ()
    still: ClassVar[tuple[str, ...]] = ()
    beside: ClassVar[tuple[str, ...]] = ()
    roles: ClassVar[Mapping[str, str]] = {}

    # -- settings ----------------------------------------------------------------------------------

    def model(self, hf_config: HFConfig, weights: Mapping[str, Tensor]) -> Table:
        """The table `[model]` of a recipe.

        Raises:
            UserError: a value that we do not have.
        """
        table: Table = {"kind": self.kind}
        for key, fixed in self.fixed.items():
            _put(table, key, fixed)
        for name in self.names:
            if (value := name.read(hf_config)) is not None:
                _put(table, name.ours, value)
        return table

    @abstractmethod
    def objective(self, weights: Mapping[str, Tensor]) -> Table:
        """The table `[objective]`, with which the model has the heads that the file holds."""

    def join(self, objective: Table, models: Mapping[str, Table]) -> Table:
        """The same with what lies beside.

        Args:
            objective: of the model alone.
            models: the tables `[model]` of what is there of `beside`, and of the model under "".
        """
        return objective

    @abstractmethod
    def packing(self, table: Table, weights: Mapping[str, Tensor]) -> Table:
        """The table `[packing]` that wraps texts as the family was trained on them.

        Args:
            table: the model's.
            weights: say which heads there are.
        """

    def start(self, hf_config: HFConfig, vocab: Vocab) -> str:
        """The special token that the decoder starts from, "" without a decoder of its own.

        Raises:
            UserError: it starts from a token that is not special.
        """
        return ""

    def architecture_of(self, design: Design) -> str:
        """The class that has the heads of `design`."""
        return self.architecture

    def around(self, design: Design) -> tuple[str, str]:
        """The special tokens before and after a text that is read, "" for none."""
        return design.packing.bos, design.packing.eos

    def describe(self, design: Design, vocab: Vocab) -> Table:
        """The keys of `config.json` that say what the model is."""
        table = resolved(design.model)
        found = {name.theirs: name.write(_get(table, name.ours)) for name in self.names}
        return {key: value for key, value in found.items() if value is not None}

    # -- parameters --------------------------------------------------------------------------------

    def rows(self, weights: Mapping[str, Tensor]) -> int:
        """Rows of the embedding.

        Raises:
            UserError: there is none.
        """
        if self.embedding not in weights:
            raise UserError(f"model.safetensors: has no tensor {self.embedding}")
        return len(weights[self.embedding])

    def parts(self, model: Model, design: Design) -> Mapping[str, tuple[Model, Design]]:
        """What is written to folders of its own: the model under "", others by their folder."""
        return {"": (model, design)}

    @abstractmethod
    def has_memory(self, design: Design, vocab: Vocab) -> Iterator[ParameterMap]:
        """Which parameters are the same."""

    def copies(self, design: Design) -> Mapping[str, str]:
        """Tensors that a file may hold twice: the second name, and the one it is a copy of."""
        return {}

    def twins(self, design: Design) -> Mapping[str, str]:
        """Tensors that they have and we have not, written as copies: name, and that of the copy.

        A file may hold other numbers there; `left` says what is then not taken over.
        """
        return {}

    def zeros(self, design: Design) -> Mapping[str, tuple[int, ...]]:
        """Tensors that they have and we have not, all 0, by their shapes."""
        return {}

    def is_buffer(self, name: str) -> bool:
        """Whether a tensor is no parameter, or one that nothing reads."""
        return False

    def notes(self, design: Design) -> tuple[str, ...]:
        """What is worth knowing of it, say where transformers computes something else, by line."""
        return ()

    def left(self, names: Iterable[str]) -> list[str]:
        """Tensors of a head that is not taken over."""
        return []


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
