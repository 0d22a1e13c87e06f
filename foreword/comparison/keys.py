"""The keys of a comparison's results in its store: the settings and data they are made from."""

from __future__ import annotations

from dataclasses import dataclass, replace

from foreword.comparison.grid import GridTask
from foreword.data.packing._contract import Packing
from foreword.data.text_files import ReadSettings
from foreword.data.write_shards import PrepareSettings
from foreword.layouts._contract import Layout
from foreword.objectives._contract import Objective
from foreword.probes._contract import Probe
from foreword.runs.recipe import Recipe
from foreword.settings.kinds import part
from foreword.text.tokenizers._contract import TokenizerKind


@dataclass(frozen=True)
class TokenizerKey:
    """The key of a tokenizer: its settings, how files are read, and their fingerprint."""

    read: ReadSettings
    text: str
    tokenizer: TokenizerKind = part("text/tokenizers", "wordpiece")


@dataclass(frozen=True)
class ShardsKey:
    """The key of token shards: settings, and fingerprints of text, tokenizer and held-out text."""

    prepare: PrepareSettings
    text: str
    tokenizer: str
    heldout: str = ""


@dataclass(frozen=True)
class RunKey:
    """The key of a run: its recipe and the fingerprint of its shards."""

    recipe: Recipe
    data: str


@dataclass(frozen=True)
class TuningKey:
    """The key of a fine-tuning: the task and the checksums of its files.

    After another task, also the key of that one. From scratch, also the network and the fingerprint
    of its tokenizer. The version is that of tuned models; keys from before it was written have 1.
    """

    task: GridTask
    files: tuple[str, ...]
    recipe: Recipe | None = None
    tokenizer: str = ""
    version: int = 1
    first: TuningKey | None = None


@dataclass(frozen=True)
class ProbeKey:
    """The key of a probe of a model: the probe and the checksums of its files."""

    files: tuple[str, ...]
    probe: Probe = part("probes")


@dataclass(frozen=True)
class LossKey:
    """The key of a loss on held-out text: the fingerprint of its shards."""

    heldout_of: str


@dataclass(frozen=True)
class FrequenciesKey:
    """The key of the loss of token frequencies: the shards, held-out rows, and what is predicted
    of them."""

    data: str
    rows: int
    objective: Objective = part("objectives")
    layout: Layout = part("layouts")
    packing: Packing = part("data/packing", "documents")


Key = TuningKey | ProbeKey | LossKey


def without_labels(recipe: Recipe) -> Recipe:
    """Return the recipe without its description, family and paper, the paths of its sources and
    its probes, which change nothing about the model."""
    sources = tuple(replace(source, path=source.name) for source in recipe.data.sources)
    data = replace(recipe.data, sources=sources)
    return replace(recipe, description="", family="", paper="", data=data, probes=())


def settings_of_task(task: GridTask) -> GridTask:
    """Return the task without names, its metric and the paths of its files."""
    return replace(task, name="", metric="", train="", dev="", after="", scratch=True)
