"""Tiny runs of every family, to start, kill, resume and compare."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from foreword.objectives.mixture import DENOISERS, Mixture
from foreword.objectives.prefix import Prefix
from foreword.objectives.span_corruption import SpanCorruption
from foreword.runs import run as running
from foreword.runs.recipe import Recipe
from foreword.runs.setup import TrainingSetup
from foreword.settings import config
from foreword.train import checkpoint, log
from foreword.train.step import StepOptions, train_step
from foreword.train.workers import accumulate_on
from foreword.types import Batch
from tests import shelf

VERBS = ["ran", "sang", "saw", "went", "slept", "sat"]
NOUNS = ["cat", "dog", "bird", "river", "house", "tree", "road", "child"]
SMALL = ["the", "a", "on", "in", "under", "over", "near", "big", "old", "red", "cold", "new"]
WORDS = SMALL + NOUNS + VERBS

# name: model, objective, layout
FAMILIES = {
    "encoder": ("transformer", "masked", "encoder"),
    "decoder": ("transformer", "causal", "decoder"),
    "span_decoder": ("transformer", "span_corruption", "decoder"),
    "prefix": ("transformer", "span_corruption", "prefix"),
    "encoder_decoder": ("encoder_decoder", "span_corruption", "encoder_decoder"),
    "transformer_xl": ("transformer", "causal", "decoder"),
    "xlnet": ("transformer", "permutation", "two_streams"),
}
NARROW = {"d_model": 16, "layers": 2, "dropout": 0.1}
# Those that look back at the row before.
MEMORIES: dict[str, dict[str, Any]] = {
    "transformer_xl": {"memory": 24, "position": {"kind": "relative"}},
    "xlnet": {"memory": 12, "position": {"kind": "relative"}, "two_streams": True},
}
AROUND = {"masked": {"bos": "[CLS]", "eos": "[SEP]"}}
PAIRS = {
    "packing": {"kind": "pairs", "length": 32, "random": 0.5},
    "read": {"documents": "file"},
    "prepare": {"heldout": 0.4},
}
# name: the family above that it is like, and what is other
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt_bert": (
        "decoder",
        {
            "objective": {"kind": "hybrid"},
            "layout": {"kind": "hybrid"},
            "model": {"assumes_causal_mask": False},
            "packing": {"bos": "<s>"},
        },
    ),
    "steps": (
        "decoder",
        {
            "optimizer": {"kind": "muon", "embeddings": 0.5},
            "model": {"bigrams": 20, "embedding_shortcut": True},
        },
    ),
    "muon": ("decoder", {"optimizer": {"kind": "muon"}}),
    "masked_inputs": ("decoder", {"objective": {"masked_inputs": 0.3}}),
    "delta": (
        "decoder",
        {
            "model": {
                "attention": {"kind": "gated_deltanet"},
                "dense_every": 2,
                "first_dense": 1,
                "qk_norm": True,
                "attention_gate": True,
            }
        },
    ),
    "bert": ("encoder", {**PAIRS, "objective": {"kind": "sum"}, "model": {"segments": 2}}),
    "albert": (
        "encoder",
        {
            **PAIRS,
            "objective": {"kind": "sum", "terms": ["masked", "sentence_order"]},
            "model": {"segments": 2, "share": "all", "d_embedding": 8},
        },
    ),
    "diffusion": ("encoder", {"objective": {"kind": "diffusion"}}),
    "spanbert": ("encoder", {"objective": {"kind": "span_masked"}}),
    "electra": ("encoder", {"objective": {"kind": "replaced_token", "generator": 0.5}}),
    "longformer": (
        "encoder",
        {"packing": {"length": 96}, "model": {"attention": {"kind": "window", "radius": 5}}},
    ),
    "bigbird": (
        "encoder",
        {
            "packing": {"length": 32},
            "model": {"attention": {"kind": "bigbird", "block": 4, "random": 1}},
        },
    ),
    "linformer": (
        "encoder",
        {
            "packing": {"document_mask": False},
            "model": {"attention": {"kind": "linformer", "length": 16, "projected": 4}},
        },
    ),
    "ul2": ("encoder_decoder", {"objective": {"kind": "mixture"}}),
    "deshuffles": ("encoder_decoder", {"objective": {"kind": "deshuffle"}}),
    "goes_on": ("prefix", {"objective": {"kind": "prefix"}}),
    "translator": (
        "encoder_decoder",
        {
            "objective": {"kind": "translate"},
            "packing": {"kind": "parallel", "length": 32},
            "read": {"documents": "line", "field": "en", "target": "de"},
            "model": {"kind": "seq2seq", **NARROW},
        },
    ),
    "fixed_window": ("decoder", {"model": {"kind": "fixed_window", **NARROW}}),
    "lstm": ("decoder", {"model": {"kind": "lstm", **NARROW}, "packing": {"kind": "stream"}}),
    "elmo": (
        "decoder",
        {
            "model": {"kind": "elmo", **NARROW},
            "objective": {"kind": "bidirectional"},
            "layout": {"kind": "bidirectional"},
        },
    ),
}


def write_text(folder: Path, files: int = 6, seed: int = 1, *, capital: bool = False) -> Path:
    """Write files of made-up sentences; capital letters let sentences be split."""
    draw = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for n in range(files):
        lines = [" ".join(draw.choices(WORDS, k=draw.randint(3, 9))) + "." for _ in range(40)]
        lines = [line.capitalize() for line in lines] if capital else lines
        (folder / f"{n}.txt").write_text("\n".join(lines), encoding="utf-8")
    return folder


def write_translations(folder: Path, seed: int = 1) -> Path:
    """Write made-up sentences, and beside each the same words in reverse order."""
    draw = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    sentences = [draw.choices(WORDS, k=draw.randint(3, 9)) for _ in range(240)]
    for side, step in (("en", 1), ("de", -1)):
        lines = [" ".join(words[::step]) + "\n" for words in sentences]
        (folder / f"train.{side}").write_text("".join(lines), encoding="utf-8")
    return folder


def text_for(family: str, text: Path, folder: Path) -> Path:
    """Return `text`, or a text in `folder` of the form that the family requires."""
    if family in ("bert", "albert"):
        return write_text(folder, capital=True)
    return write_translations(folder) if family == "translator" else text


def short_spans(objective: str, length: int) -> dict[str, Any]:
    """Return settings of an objective that fit short rows."""
    if objective == "permutation":
        return {"max_span": max(1, length // 8)}
    if objective != "mixture":
        return {}
    spans = [o for o in DENOISERS if isinstance(o, SpanCorruption)]
    hidden = [o.counts(length)[0] for o in spans]
    short = [replace(o, mean_span=min(o.mean_span, n)) for o, n in zip(spans, hidden, strict=True)]
    return config.to_table(Mixture((*short, Prefix(0.25))))


def table(family: str = "decoder", **train: Any) -> dict[str, Any]:
    """Return a tiny recipe with dropout, as a table."""
    if family in VARIANTS:
        like, other = VARIANTS[family]
        spans = short_spans(other.get("objective", {}).get("kind", ""), 16)
        return config.merge(table(like, **train), config.merge(other, {"objective": spans}))
    model, objective, layout = FAMILIES[family]
    causal = {"assumes_causal_mask": layout == "decoder"} if model == "transformer" else {}
    packing = {"kind": "documents", "length": 16, **AROUND.get(objective, {"eos": "</s>"})}
    if family in MEMORIES:
        packing["kind"] = "stream"
    return {
        "model": {
            "kind": model,
            "d_model": 16,
            "layers": 2,
            "heads": 2,
            "dropout": 0.1,
            "attention_dropout": 0.1,
            "position": {"kind": "rotary"},
            **causal,
            **MEMORIES.get(family, {}),
        },
        "objective": {"kind": objective, **short_spans(objective, 16)},
        "layout": {"kind": layout},
        "packing": packing,
        "tokenizer": {"kind": "word", "min_count": 1},
        "read": {"documents": "line"},
        "prepare": {"heldout": 0.1},
        "train": {
            "batch": 4,
            "micro_batch": 4,
            "threads": 2,
            "steps": 12,
            "evaluations": 3,
            "checkpoints": 4,
            "heldout_rows": 6,
            "device": "cpu",
            "precision": "fp32",
            **train,
        },
    }


def recipe(family: str = "decoder", **train: Any) -> Recipe:
    """Return a tiny recipe."""
    return build(table(family, **train))


def build(made: dict[str, Any]) -> Recipe:
    """Build the recipe of a table."""
    return config.build(Recipe, made)


class Killed(BaseException):
    """An exception that stops a run as a kill would."""


class Quiet:
    """A progress reporter that keeps notes and warnings, and acts at one step.

    Args:
        at: the step.
        act: what to do after it was logged.
    """

    def __init__(self, at: int = -1, act: Callable[[], None] = lambda: None) -> None:
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self._at, self._act = at, act

    def note(self, text: str) -> None:
        self.notes.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def stage(self, name: str) -> Callable[[float, float], None]:
        return lambda *_: None

    def record(self, record: dict[str, Any], progress: float) -> None:
        if record["step"] == self._at and record["kind"] == "train":
            self._act()


def stage(name: str) -> Callable[[float, float], None]:
    """Return a progress function that shows nothing."""
    return lambda *_: None


def begin(made: Recipe, text: Path, run: Path, probes: Sequence[Mapping[str, Any]] = ()) -> Path:
    """Write the run folder and return it."""
    running.start(made, running.Inputs((str(text),), probes=tuple(probes)), run)
    return run


def train_run(run: Path, reporter: Quiet | None = None) -> bool:
    """Train to the end; return whether the run is done."""
    return running.train_run(run, reporter or Quiet())


def whole(made: Recipe, text: Path, run: Path) -> Path:
    """Return a run that was trained to its end at once, a copy of the one on the shelf."""
    return shelf.copied(
        f"{made.dumps()} {text}", lambda folder: train_run(begin(made, text, folder)), run
    )


def kill() -> None:
    raise Killed


def die_at(run: Path, step: int) -> None:
    """Train, and stop as if killed right after a step was logged."""
    try:
        train_run(run, Quiet(step, kill))
    except Killed:
        return
    raise AssertionError(f"did not come to step {step}")


def last_bytes(run: Path) -> dict[str, bytes]:
    """Return the bytes of weights, optimizer and memory in the last checkpoint."""
    folder = checkpoint.all_in(run)[-1]
    return {file.name: file.read_bytes() for file in folder.glob("*.safetensors")}


def logged(run: Path, kind: str) -> list[dict[str, Any]]:
    """Return the records of a kind, without times and speeds."""
    clock = ("seconds", "tokens_per_second", "share_of_matmul")
    return [
        {key: value for key, value in record.items() if key not in clock}
        for record in log.read(run)
        if record["kind"] == kind
    ]


def gradient(setup: TrainingSetup, batches: Sequence[Batch], workers: int = 1) -> torch.Tensor:
    """Return what an SGD step of rate 1 subtracts; the model is left unchanged."""
    before = [p.detach().clone() for p in setup.model.parameters()]
    train_step(
        setup.model,
        torch.optim.SGD(setup.model.parameters(), lr=1.0),
        batches,
        partial(setup.recipe.objective.loss, setup.model),
        range(len(batches)),
        StepOptions(0.0, setup.dtype, accumulate=accumulate_on(workers)),
    )
    with torch.no_grad():
        moved = [old - p for old, p in zip(before, setup.model.parameters(), strict=True)]
        for p, old in zip(setup.model.parameters(), before, strict=True):
            p.copy_(old)
    return torch.cat([m.flatten() for m in moved])
