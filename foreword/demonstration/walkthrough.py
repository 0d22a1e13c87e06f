"""The demo's stages, in reading order: text, pretraining, blanks, fine-tuning, report.

    out/  demo.json     settings of this demo; one with others is refused
          text/         see `foreword.demonstration.corpus`
          run/          an ordinary run folder
          report.html

A stage whose result exists is skipped, so a demo that was killed continues.

Pretraining is a fixed number of steps, so that a busy machine shows the same and only takes longer.
Labels are few, which is what pretraining is for, and test passages many, so that margins exclude 0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foreword.demonstration import corpus, installed
from foreword.demonstration.corpus import CorpusCounts, Limits
from foreword.disk import atomic, stored
from foreword.errors import UserError
from foreword.evaluation import heldout
from foreword.evaluation.baselines import prediction_name
from foreword.evaluation.filling import FilledText
from foreword.evaluation.loaded import load
from foreword.evaluation.samples import samples
from foreword.planning.conditions import machine
from foreword.reports.page import write_page
from foreword.runs import run as running
from foreword.runs.provenance import read_state
from foreword.runs.recipe import Recipe, load_recipe
from foreword.runs.run_folder import is_finished, open_run
from foreword.runs.stages import ProgressReporter, Stage, unwatched
from foreword.tables.examples import Labelled
from foreword.train import log
from foreword.tuning.job import Examples, TuneJob
from foreword.tuning.settings import TuneSettings
from foreword.tuning.strategies.frozen import Frozen
from foreword.tuning.strategies.full import Full
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.trainings import Listeners, ReportProgress
from foreword.tuning.tune import tune
from foreword.tuning.tune_result import as_json, save_network

DEMO_FILE = "demo.json"
RECIPE, SMALL_RECIPE = "demo_encoder", "demo_encoder_small"
# FLOP/s of a large matrix product from which the larger recipe is used, to end in five minutes. At
# 4.3e11 (two cores, bf16) it pretrained for 4 min 42 s, and the small one's demo took 4 min 32 s in
# all, with both gains well above 0; at 1.3e11 (fp32) the small one learns far more.
FAST = 1e12
BLANKS = (
    "This function returns a [MASK] of strings.",
    "Return the number of [MASK] in the graph.",
    "Raises an [MASK] if the file does not exist.",
    "The default value is [MASK].",
    "Compute the eigenvalues of a symmetric [MASK].",
)
NAME = "which-package"  # name of the fine-tuning


@dataclass(frozen=True)
class Size:
    """The size of the demo.

    Attributes:
        limits: size of the text.
        recipe: `--set` assignments for the recipe.
        steps: steps of pretraining; None for the recipe's own.
        variants: settings of fine-tuning to compare.
    """

    limits: Limits
    recipe: tuple[str, ...]
    steps: int | None
    variants: tuple[TuneSettings, ...]


# Each variant's learning rate and epochs were the best for it, or as good, on other passages of the
# training files; the test was not used.
_PRETRAINED = TuneSettings(
    strategy=Full(lr=1e-3), seeds=5, epochs=12, batch=8, examples=80, score_every=6
)
_FROZEN = replace(_PRETRAINED, strategy=Frozen(lr=2e-2), epochs=24)
_SCRATCH = replace(_PRETRAINED, strategy=Full(lr=7e-4), epochs=18, from_scratch=True)
FULL = Size(Limits(), (), None, (_PRETRAINED, _FROZEN, _SCRATCH))
QUICK = Size(
    Limits(characters=30_000, packages=4, train=8, test=8),
    ("tokenizer.vocab=1024", "model.d_model=64", "model.heads=2", "model.d_ff=96"),
    20,
    tuple(replace(v, seeds=2, epochs=1, examples=None) for v in FULL.variants),
)


class Demo:
    """A demo in its folder.

    Args:
        out: the folder; created if it does not exist.
        is_quick: whether it is much shorter, to see that everything runs.

    Raises:
        UserError: the folder holds something else, or a demo of another size.
    """

    def __init__(self, out: Path, *, is_quick: bool = False) -> None:
        self.out, self.run, self.text = out, out / "run", out / "text"
        self.size = QUICK if is_quick else FULL
        self.settings = {"demo": 2, "is_quick": is_quick}
        atomic.require_writable(out, is_folder=True)
        mark = out / DEMO_FILE
        if mark.is_file():
            if json.loads(mark.read_text(encoding="utf-8")) != self.settings:
                raise UserError(
                    f"{out}: holds another version's demo, or one of another size; "
                    "choose another --out"
                )
        elif out.is_dir() and any(out.iterdir()):
            raise UserError(f"{out}: holds something else than a demo; choose another --out")
        else:
            atomic.write_text(mark, stored.to_json(self.settings) + "\n")

    def read(
        self, on_progress: Callable[[int, int], None] | None = None
    ) -> tuple[CorpusCounts, bool]:
        """Return the counts of the text, and whether it existed already; write it if not.

        Raises:
            UserError: there is too little documentation on this machine.
        """
        counts = corpus.load(self.text)
        if counts is not None:
            return counts, True
        return corpus.build(self.text, installed.packages(), self.size.limits, on_progress), False

    def is_pretrained(self) -> bool:
        """Return whether pretraining is finished."""
        return is_finished(self.run)

    def pretrain(self, reporter: ProgressReporter) -> bool:
        """Start or continue pretraining; return False if a signal stopped it.

        Raises:
            UserError: the disk is full, the text is too short, or the recipe is invalid.
        """
        if self.is_pretrained():
            return True
        if not (self.run / "recipe.toml").is_file():
            recipe = self._recipe(reporter)
            if self.size.steps is not None:
                recipe = replace(recipe, train=replace(recipe.train, steps=self.size.steps))
            running.start(recipe, running.Inputs((str(self.text / "documents.jsonl"),)), self.run)
        return running.train_run(self.run, reporter, samples)

    def _recipe(self, reporter: ProgressReporter) -> Recipe:
        """Return the recipe for this machine."""
        recipe = load_recipe(RECIPE, self.size.recipe)
        if self.size.steps is not None:
            return recipe
        speed = machine("encoder", 1.0, recipe).flops_per_second
        if speed >= FAST:
            return recipe
        reporter.note(
            f"products of matrices run at {speed / 1e9:.0f} GFLOP/s here: a smaller "
            "network learns more in minutes"
        )
        return load_recipe(SMALL_RECIPE, self.size.recipe)

    def measure(self, stage: Stage = unwatched) -> dict[str, Any]:
        """Return the steps, tokens and seconds of pretraining, and losses in nats per masked token.

        `before` is the loss of the first step, `after` the held-out loss at the end, `unigram` that
        of a unigram model, which predicts each token by its frequency.
        """
        # Measure the held-out loss, once.
        file = self.run / "evaluations" / "evaluate-heldout.json"
        if not file.is_file():
            loaded = load(self.run)
            prepared = heldout.shards_of(loaded.trained, self.run)
            losses = heldout.on_prepared(loaded.trained, prepared, stage=stage)
            result = {
                "name": "held-out text",
                "task": "held-out loss",
                "checkpoint": loaded.trained.folder.name,
                "prediction": prediction_name(loaded.trained.recipe),
                "rows": [one.as_row() for one in losses],
                "notes": [f"{one.what}: {one.about}" for one in losses if one.about],
                "command": f"foreword evaluate {self.run}",
            }
            atomic.write_text(file, stored.record(result))
        rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
        # Collect it with the training records.
        records = [record for record in log.read(self.run) if record["kind"] == "train"]
        unigram = next((r["loss"] for r in rows if r["what"] == "unigram counts"), None)
        return {
            "parameters": read_state(self.run)["parameters"],
            "steps": records[-1]["step"],
            "tokens": records[-1]["tokens"],
            "seconds": records[-1]["seconds"],
            "before": records[0]["loss"],
            "after": rows[0]["loss"],
            "unigram": unigram,
        }

    def fill(self, top: int = 5) -> list[FilledText]:
        """Return sentences like those of the text with their blanks filled."""
        loaded = load(self.run)
        return [loaded.fill(text, top) for text in BLANKS]

    def tune(self, on_progress: ReportProgress) -> tuple[Any, bool]:
        """Return the fine-tuning's evaluation, and whether it existed already; tune if not.

        All variants and the bag-of-words baseline learn from the same labelled passages.

        Raises:
            TrainingStoppedError: the loss is no longer finite.
        """
        file = self.run / "evaluations" / f"tune-classify-{NAME}.json"
        if file.is_file():
            return json.loads(file.read_text(encoding="utf-8")), True
        train, test = (_passages(self.text / f"{name}.jsonl") for name in ("train", "test"))
        # With few packages there may be no more labels than a seed would draw.
        variants = [
            v if v.examples is None or v.examples < len(train) else replace(v, examples=None)
            for v in self.size.variants
        ]
        job = TuneJob(Classify(), Examples(train, test), variants)
        result = tune(open_run(self.run), job, Listeners(on_progress))
        save_network(result, self.run / "tuned" / NAME)
        content = as_json(result, NAME, f"foreword demo --out {self.out}")
        stored.write(file, content)
        return content, False

    def report(self) -> Path:
        """Write the page; return its path."""
        return write_page(self.run, self.out / "report.html")


def _passages(file: Path) -> Sequence[Labelled]:
    lines = file.read_text(encoding="utf-8").split("\n")  # texts may hold other line ends
    records = [json.loads(line) for line in lines if line]
    return [Labelled(r["text"], r["label"], source=f"{file}:{n}") for n, r in enumerate(records, 1)]
