"""The demo's stages, in reading order: text, pretraining, blanks, fine-tuning, report.

    out/  demo.json     what this demo is; another one is not mixed with it
          text/         see `foreword.demo.corpus`
          run/          a run folder like any other
          report.html

Each stage is skipped where its result is there already, so a demo that was killed carries on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foreword import atomic, stored
from foreword.demo import corpus, installed
from foreword.demo.bag import bag_of_words
from foreword.demo.corpus import CorpusCounts, Limits
from foreword.errors import UserError
from foreword.evaluate import heldout
from foreword.evaluate.filling import FilledText
from foreword.evaluate.loaded import load
from foreword.evaluate.samples import samples
from foreword.report.page import write_page
from foreword.runs import run as running
from foreword.runs.corpus import Stage, unwatched
from foreword.runs.hooks import ProgressReporter
from foreword.runs.provenance import read_state
from foreword.runs.recipe import load_recipe
from foreword.runs.trained_model import is_finished, open_run
from foreword.train import log
from foreword.tune.result import save_evaluation, save_network
from foreword.tune.run import TuneSettings, tune
from foreword.tune.strategies.frozen import Frozen
from foreword.tune.strategies.full import Full
from foreword.tune.tasks._contract import Labelled
from foreword.tune.tasks.classify import Classify

DEMO_FILE = "demo.json"
RECIPE = "demo_encoder"
BLANKS = (
    "This function returns a [MASK] of strings.",
    "Return the number of [MASK] in the graph.",
    "Raises an [MASK] if the file does not exist.",
    "The default value is [MASK].",
    "Compute the eigenvalues of a symmetric [MASK].",
)
NAME = "which-package"  # of the fine-tuning


@dataclass(frozen=True)
class Size:
    """How long the demo is.

    Attributes:
        limits: of the text.
        recipe: `--set` assignments on the recipe.
        steps: the budget of pretraining in the place of the recipe's, or None.
        variants: to fine-tune, compared with each other.
    """

    limits: Limits
    recipe: tuple[str, ...]
    steps: int | None
    variants: tuple[TuneSettings, ...]


# Each way's learning rate and epochs are those that did best for it on other passages of the
# files that are trained on; the test was not looked at.
_PRETRAINED = TuneSettings(strategy=Full(lr=1e-3), seeds=3, epochs=4, batch=8)
_FROZEN = replace(_PRETRAINED, strategy=Frozen(lr=2e-2))
_SCRATCH = replace(_PRETRAINED, strategy=Full(lr=7e-4), epochs=6, from_scratch=True)
FULL = Size(Limits(), (), None, (_PRETRAINED, _FROZEN, _SCRATCH))
QUICK = Size(
    Limits(characters=30_000, packages=4, train=8, test=8),
    ("tokenizer.vocab=1024", "model.d_model=64", "model.heads=2", "model.d_ff=96"),
    20,
    tuple(replace(variant, seeds=2, epochs=1) for variant in FULL.variants),
)


class Demo:
    """A demo in its folder.

    Args:
        out: the folder; made if it is not there.
        is_quick: a much shorter one, to see that everything runs.

    Raises:
        UserError: the folder holds something else, or a demo of another length.
    """

    def __init__(self, out: Path, *, is_quick: bool = False) -> None:
        self.out, self.run, self.text = out, out / "run", out / "text"
        self.size = QUICK if is_quick else FULL
        self.settings = {"demo": 1, "is_quick": is_quick}
        atomic.require_writable(out, is_folder=True)
        mark = out / DEMO_FILE
        if mark.is_file():
            if json.loads(mark.read_text(encoding="utf-8")) != self.settings:
                raise UserError(f"{out}: holds a demo of another kind; choose another --out")
        elif out.is_dir() and any(out.iterdir()):
            raise UserError(f"{out}: holds something else than a demo; choose another --out")
        else:
            atomic.write_text(mark, stored.to_json(self.settings) + "\n")

    def read(
        self, on_progress: Callable[[int, int], None] | None = None
    ) -> tuple[CorpusCounts, bool]:
        """The text, and whether it was there already.

        Raises:
            UserError: too little is documented on this machine.
        """
        counts = corpus.load(self.text)
        if counts is not None:
            return counts, True
        return corpus.build(self.text, installed.packages(), self.size.limits, on_progress), False

    def is_pretrained(self) -> bool:
        """Whether pretraining has been done to its end."""
        return is_finished(self.run)

    def pretrain(self, reporter: ProgressReporter, stage: Stage) -> bool:
        """Pretrains what is left; False when a signal asked to stop.

        Raises:
            UserError: the disk is full, the text is too short, the recipe is impossible.
        """
        if self.is_pretrained():
            return True
        if not (self.run / "recipe.toml").is_file():
            recipe = load_recipe(RECIPE, self.size.recipe)
            if self.size.steps is not None:
                train = replace(recipe.train, hours=None, steps=self.size.steps)
                recipe = replace(recipe, train=train)
            running.start(recipe, running.Inputs((str(self.text / "documents.jsonl"),)), self.run)
        return running.carry_on(self.run, reporter, stage, samples)

    def measure(self, stage: Stage = unwatched) -> dict[str, Any]:
        """What pretraining came to: steps, tokens, seconds, and losses in nats per word hidden.

        `before` is the loss of the first step, `after` the held-out loss at the end, `unigram`
        that of guessing each word by its frequency, reading nothing.
        """
        file = self.run / "evaluations" / "evaluate-heldout.json"
        if not file.is_file():
            loaded = load(self.run)
            rows = [one.as_row() for one in heldout.on_run(loaded.trained, self.run, stage=stage)]
            result = {"name": "held-out text", "task": "held-out loss", "rows": rows}
            command = {"command": f"foreword evaluate {self.run}"}
            atomic.write_text(file, stored.to_json(result | command, indent=1) + "\n")
        rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
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
        """Sentences of the text's kind with their blanks filled."""
        loaded = load(self.run)
        return [loaded.fill(text, top) for text in BLANKS]

    def tune(self, on_progress: Callable[[int, int, str], None] | None = None) -> tuple[Any, bool]:
        """The fine-tuning's evaluation, and whether it was there already.

        Pretrained and from scratch, and a bag of words, learn from the same labelled passages.

        Raises:
            TrainingStoppedError: the loss is no longer finite.
        """
        file = self.run / "evaluations" / f"tune-classify-{NAME}.json"
        if file.is_file():
            return json.loads(file.read_text(encoding="utf-8")), True
        train, test = (_passages(self.text / f"{name}.jsonl") for name in ("train", "test"))
        task = Classify()
        result = tune(open_run(self.run), task, train, test, self.size.variants, on_progress)
        rows = [*result.rows[:-1], bag_of_words(task, train, test), result.rows[-1]]
        save_network(result, self.run / "tuned" / NAME)
        command = f"foreword demo --out {self.out}"
        return save_evaluation(replace(result, rows=rows), file, NAME, command), False

    def report(self) -> Path:
        """Writes the page."""
        return write_page(self.run, self.out / "report.html")


def _passages(file: Path) -> Sequence[Labelled]:
    lines = file.read_text(encoding="utf-8").split("\n")  # texts may hold what else ends a line
    records = [json.loads(line) for line in lines if line]
    return [Labelled(r["text"], r["label"], source=f"{file}:{n}") for n, r in enumerate(records, 1)]
