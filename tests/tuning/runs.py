"""Tiny run folders of each layout, with random weights, and a task that can be learned."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foreword.nn.init import initialise
from foreword.runs.recipe import Recipe
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds
from foreword.tables.examples import Labelled
from foreword.text.tokenizers.word import Word
from foreword.train import checkpoint
from foreword.tuning.job import Examples, TuneJob
from foreword.tuning.settings import TuneSettings
from foreword.tuning.tasks._contract import Task
from foreword.tuning.trainings import Listeners
from foreword.tuning.tune import tune as tune_job
from foreword.tuning.tune_result import TuneResult
from tests import shelf

GOOD = ["lovely", "fine", "warm", "bright"]
BAD = ["awful", "cold", "dull", "grim"]
OTHER = ["the", "film", "was", "and", "a", "day", "in", "town", "we", "saw"]

LAYOUTS = ("encoder", "two_streams", "bidirectional", "decoder", "prefix", "encoder_decoder")

MODEL = {"d_model": 32, "layers": 2, "heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
PARTS = {
    "encoder": {
        "model": {
            "kind": "transformer",
            "segments": 2,
            "position": {"kind": "learned", "length": 48},
        },
        "objective": {"kind": "masked"},
        "packing": {"kind": "documents", "length": 32, "bos": "[CLS]", "eos": "[SEP]"},
    },
    "two_streams": {
        "model": {"kind": "transformer", "two_streams": True, "position": {"kind": "relative"}},
        "objective": {"kind": "permutation"},
        "packing": {"kind": "documents", "length": 32, "eos": "[SEP]"},
    },
    "bidirectional": {
        "model": {"kind": "elmo", "init": "t5"},
        "objective": {"kind": "bidirectional"},
        "packing": {"kind": "documents", "length": 32, "bos": "[CLS]", "eos": "[SEP]"},
    },
    "decoder": {
        "model": {
            "kind": "transformer",
            "assumes_causal_mask": True,
            "position": {"kind": "rotary"},
        },
        "objective": {"kind": "causal"},
        "packing": {"kind": "documents", "length": 32, "eos": "</s>"},
    },
    "diffusion": {
        "layout": {"kind": "encoder"},
        "model": {"kind": "transformer", "position": {"kind": "rotary"}},
        "objective": {"kind": "diffusion"},
        "packing": {"kind": "documents", "length": 32, "bos": "<s>", "eos": "</s>"},
    },
    "hybrid": {
        "model": {"kind": "transformer", "position": {"kind": "rotary"}},
        "objective": {"kind": "hybrid"},
        "packing": {"kind": "documents", "length": 32, "bos": "<s>", "eos": "</s>"},
    },
    "recurrent": {
        "layout": {"kind": "decoder"},
        "model": {"kind": "lstm"},
        "objective": {"kind": "causal"},
        "packing": {"kind": "stream", "length": 32, "eos": "</s>"},
    },
    "word_vectors": {
        "layout": {"kind": "decoder"},
        "model": {"kind": "word_vectors"},
        "objective": {"kind": "causal"},
        "packing": {"kind": "documents", "length": 32, "bos": "<s>", "eos": "</s>"},
    },
    "prefix": {
        "model": {"kind": "transformer", "position": {"kind": "t5_bias"}},
        "objective": {"kind": "span_corruption"},
        "packing": {"kind": "documents", "length": 32, "eos": ""},
    },
    "encoder_decoder": {
        "model": {"kind": "encoder_decoder", "position": {"kind": "t5_bias"}},
        "objective": {"kind": "span_corruption"},
        "packing": {"kind": "documents", "length": 32, "eos": "</s>"},
    },
}


def make_run(folder: Path, layout: str = "encoder", **model: object) -> Path:
    """Return a run folder as pretraining leaves it, with random weights."""
    key = f"tuning {layout} {PARTS[layout]} {sorted(model.items())}"
    return shelf.copied(key, lambda made: write_run(made, layout, model), folder)


def write_run(folder: Path, layout: str, model: Mapping[str, object]) -> None:
    table = {"layout": {"kind": layout}, **PARTS[layout], "train": {"device": "cpu"}}
    own = PARTS[layout]["model"]
    known = kinds.load("models", str(own["kind"])).__dataclass_fields__
    table["model"] = {**{k: v for k, v in MODEL.items() if k in known}, **own, **model}
    recipe = config.build(Recipe, table)
    words = [" ".join(GOOD + BAD + OTHER)] * 3
    tokenizer = Word().train(words)
    network = recipe.build(tokenizer.vocab)
    initialise(network, 1)
    checkpoint.save(folder / "checkpoints" / "step-00000001", network, None, {"step": 1})
    tokenizer.save(folder / "tokenizer")
    (folder / "recipe.toml").write_text(recipe.dumps(), encoding="utf-8")
    (folder / "run.json").write_text("{}", encoding="utf-8")


def reviews(count: int, seed: int) -> list[Labelled]:
    """Texts with one telling word each."""
    rng = random.Random(seed)
    examples = []
    for n in range(count):
        label = ("bad", "good")[n % 2]
        words = rng.choices(OTHER, k=rng.randint(1, 8))
        words.insert(rng.randint(0, len(words)), rng.choice(GOOD if label == "good" else BAD))
        examples.append(Labelled(" ".join(words), label))
    return examples


def tune(
    trained: TrainedModel,
    task: Task,
    train: Sequence[Any],
    dev: Sequence[Any],
    settings: TuneSettings | Sequence[TuneSettings] = TuneSettings(),  # noqa: B008
    extra: Mapping[str, Sequence[Any]] | None = None,
    folder: Path | None = None,
    **listeners: Any,
) -> TuneResult:
    """Fine-tune on examples in memory."""
    variants = [settings] if isinstance(settings, TuneSettings) else settings
    labelled = ([Labelled(*example) for example in part] for part in (train, dev))
    job = TuneJob(task, Examples(*labelled, extra or {}), variants, folder=folder)
    return tune_job(trained, job, Listeners(**listeners))
