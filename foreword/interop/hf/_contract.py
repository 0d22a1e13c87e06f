"""The contract of a model family of `transformers`: its names for our settings and parameters.

Each file of `interop/hf/` holds one family, named by the `model_type` of its `config.json`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from foreword.data.packing._contract import Packing
from foreword.errors import UserError
from foreword.interop.hf_config import HFConfig
from foreword.layouts._contract import Layout
from foreword.nn.model import Model
from foreword.objectives._contract import Objective
from foreword.runs.same_model import resolved
from foreword.types import Vocab

Table = dict[str, Any]

# Linear maps on a token's state, as most encoders name them: see `Family.linear_heads`.
LINEAR_HEADS = MappingProxyType(
    {"TokenClassification": "classifier", "QuestionAnswering": "qa_outputs"}
)
# Where the class that answers questions computes something else.
TOKEN_HEADS = MappingProxyType({"TokenClassification": "classifier"})


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

    Theirs, concatenated along the first dimension, equal ours concatenated, up to a transpose and
    skipped rows.

    Attributes:
        ours: names in our model.
        theirs: names in their file; the tensors have equal shapes.
        is_transposed: whether theirs are stored as (in, out).
        skipped: number of first rows of theirs that no text uses.
        shape: the shape of each of theirs, if its last two dimensions are one of ours.
    """

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    is_transposed: bool = False
    skipped: int = 0
    shape: tuple[int, ...] | None = None

    def from_hf(self, theirs: Iterable[Tensor], rows: list[int]) -> tuple[Tensor, ...]:
        """Return our parameters; `rows` gives the number of rows of each."""
        return torch.split(torch.cat([self._in(t) for t in theirs])[self.skipped :], rows)

    def to_hf(self, ours: Iterable[Tensor]) -> list[Tensor]:
        """Return their tensors; skipped rows are 0."""
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


@dataclass(frozen=True)
class PublishedHead:
    """A class of a family with a task's head, and its names for ours.

    Attributes:
        architecture: the class in `transformers`.
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
    """

    architecture: str
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

    def of(self, auto_class: str) -> PublishedHead:
        """Return the same head in another class: MultipleChoice, ..."""
        name = self.architecture.partition("For")[0]
        return replace(self, architecture=f"{name}For{auto_class}")


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
        names: theirs by ours, without prefix and suffix: {"output": "attn.c_proj"}.
        ours: the prefix of our names.
        theirs: the prefix of their names.
        kinds: the suffixes, "weight" and "bias".
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
    """A model family of `transformers`; as a kind it has no settings.

    Attributes:
        architecture: the class in `transformers` that has our heads.
        model_type: its name in `config.json`, if other than the file's name.
        kind: the kind of our model.
        layout: the kind of our layout.
        prefix: the prefix of the backbone's tensors, which some files leave out.
        embedding: the name of the token embedding.
        setting_maps: the settings that have a key in `config.json`.
        fixed: settings of ours that every model of the family has.
        supported_values: keys that are accepted at these values only; None accepts any value that
            is not true.
        ignored_keys: keys without effect on what is computed.
        dropout_keys: the keys of dropout, if theirs computes what ours does in training mode only;
            then the logits are checked in training mode, with these at 0.
        subfolders: subfolders of the model's folder, each with a submodel that is published apart.
        roles: special tokens by role, if the tokenizer's files do not name them.
        linear_heads: the prefix of the linear map on a token's state, by class of `transformers`
            without its family (`TokenClassification`), where nothing else is computed.
    """

    architecture: ClassVar[str]
    model_type: ClassVar[str] = ""
    kind: ClassVar[str] = "transformer"
    layout: ClassVar[str]
    prefix: ClassVar[str] = ""
    embedding: ClassVar[str]
    setting_maps: ClassVar[tuple[SettingMap, ...]]
    fixed: ClassVar[Mapping[str, Any]]
    supported_values: ClassVar[Mapping[str, Any]] = {}
    ignored_keys: ClassVar[tuple[str, ...]] = ()
    dropout_keys: ClassVar[tuple[str, ...]] = ()
    subfolders: ClassVar[tuple[str, ...]] = ()
    roles: ClassVar[Mapping[str, str]] = {}
    linear_heads: ClassVar[Mapping[str, str]] = {}

    # -- settings ----------------------------------------------------------------------------------

    def model(self, hf_config: HFConfig, weights: Mapping[str, Tensor]) -> Table:
        """Return the table `[model]` of a recipe.

        Raises:
            UserError: a value is not supported.
        """
        table: Table = {"kind": self.kind}
        for key, fixed in self.fixed.items():
            _put(table, key, fixed)
        for name in self.setting_maps:
            if (value := name.read(hf_config)) is not None:
                _put(table, name.ours, value)
        return table

    @abstractmethod
    def objective(self, weights: Mapping[str, Tensor]) -> Table:
        """Return the table `[objective]` that gives the model the heads in the file."""

    def combine_objective(self, objective: Table, models: Mapping[str, Table]) -> Table:
        """Return the table `[objective]` of the model and its subfolders together.

        Args:
            objective: the table of the model alone.
            models: the tables `[model]` of the subfolders that exist, and of the model under "".
        """
        return objective

    @abstractmethod
    def packing(self, table: Table, weights: Mapping[str, Tensor]) -> Table:
        """Return the table `[packing]` that wraps texts as in the family's training.

        Args:
            table: the table `[model]`.
            weights: the tensors of the file, which show its heads.
        """

    def decoder_start(self, hf_config: HFConfig, vocab: Vocab) -> str:
        """Return the special token that the decoder starts from, "" if it has no separate decoder.

        Raises:
            UserError: the decoder starts from a token that is not special.
        """
        return ""

    def architecture_of(self, design: Design) -> str:
        """Return the name of the class that has the heads of `design`."""
        return self.architecture

    def bos_and_eos(self, design: Design) -> tuple[str, str]:
        """Return the special tokens before and after an input text, "" for none."""
        return design.packing.bos, design.packing.eos

    def describe(self, design: Design, vocab: Vocab) -> Table:
        """Return the keys of `config.json` that define the model."""
        table = resolved(design.model)
        values = {name.theirs: name.write(_get(table, name.ours)) for name in self.setting_maps}
        return {key: value for key, value in values.items() if value is not None}

    # -- parameters --------------------------------------------------------------------------------

    def vocab_rows(self, weights: Mapping[str, Tensor]) -> int:
        """Return the number of rows of the token embedding.

        Raises:
            UserError: there is no such tensor.
        """
        if self.embedding not in weights:
            raise UserError(f"model.safetensors: has no tensor {self.embedding}")
        return len(weights[self.embedding])

    def folders(self, model: Model, design: Design) -> Mapping[str, tuple[Model, Design]]:
        """Return the parts to write to each folder: the model under "", others by subfolder."""
        return {"": (model, design)}

    @abstractmethod
    def parameter_maps(self, design: Design, vocab: Vocab) -> Iterator[ParameterMap]:
        """Yield the mapping of each of our parameters to their tensors."""

    def tied_tensors(self, design: Design) -> Mapping[str, str]:
        """Return tied tensors that a file may hold twice: the second name by the first."""
        return {}

    def copied_tensors(self, design: Design) -> Mapping[str, str]:
        """Return tensors that only they have, each with the one it is written as a copy of.

        A file may hold other values there; then `dropped_tensors` names them.
        """
        return {}

    def zero_tensors(self, design: Design) -> Mapping[str, tuple[int, ...]]:
        """Return tensors that only they have and that are all 0, with their shapes."""
        return {}

    def is_buffer(self, name: str) -> bool:
        """Return whether a tensor is not a parameter, or is never read."""
        return False

    def notes(self, design: Design) -> tuple[str, ...]:
        """Return remarks for the user, such as where `transformers` computes something else."""
        return ()

    # -- fine-tuned models -------------------------------------------------------------------------

    def classifier(self, design: Design) -> PublishedHead | None:
        """Return the class that classifies texts; None if it reads another state than ours can."""
        return None

    def published_head(self, design: Design, auto_class: str) -> PublishedHead | None:
        """Return the class with a task's head; None if there is none that computes what ours does.

        Args:
            design: the design.
            auto_class: the class without its family: `TokenClassification`.
        """
        if auto_class == "SequenceClassification":
            return self.classifier(design)
        if auto_class == "MultipleChoice":
            return self.choice_head(design)
        output = self.linear_heads.get(auto_class)
        if output is None:
            return None
        name = re.sub(r"(For[A-Z]|LMHead).*", "", self.architecture)
        return PublishedHead(f"{name}For{auto_class}", output)

    def choice_head(self, design: Design) -> PublishedHead | None:
        """Return the class that scores options; None if it computes something else than ours."""
        return None

    def head_problem(self, design: Design, auto_class: str, length: int) -> str:
        """Return why that class computes something else on texts of some length, "" if it does not.

        Args:
            design: the design.
            auto_class: as in `published_head`.
            length: the most tokens of a text.
        """
        return ""

    def checked_length(self, design: Design, length: int) -> int:
        """Return the most tokens, up to `length`, of texts on which theirs computes what ours does.

        Beyond it, `notes` tell what differs.
        """
        return length

    def dropped_tensors(self, names: Iterable[str]) -> list[str]:
        """Return those of `names` that belong to a head which is not imported."""
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
