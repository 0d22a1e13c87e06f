"""`foreword demo`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.display.progress import ProgressDisplay, progress_of
from foreword.display.results import Facts, Part, Remark, Result, ResultTable
from foreword.runs.stages import Prefixed
from foreword.verbs._contract import PYTHON_ONLY, PathName, Verb

if TYPE_CHECKING:
    from foreword.demonstration import walkthrough
    from foreword.demonstration.corpus import CorpusCounts
    from foreword.evaluation.filling import FilledText

SETTING_COLUMNS = ("lr", "epochs")


@dataclass(frozen=True, repr=False)
class DemoResult(Result):
    """What the demo measured.

    Attributes:
        out: its folder.
        text: counts of the text.
        pretraining: steps, tokens, seconds and losses of pretraining.
        filled: sentences with their blanks filled.
        tuning: the evaluation of fine-tuning.
        report: the page.
    """

    out: Path
    text: CorpusCounts
    pretraining: Mapping[str, Any]
    filled: Sequence[FilledText]
    tuning: Mapping[str, Any]
    report: Path

    def tables(self) -> Sequence[Part]:
        """Return the scores, what pretraining was worth, the report, and commands to try."""
        return [
            ResultTable([_score_row(row) for row in self.tuning["rows"]]),
            *map(Remark, _lines_on_tuning(self.text, self.tuning)),
            Facts({"report": self.report}),
            Remark("Try next:"),
            *(Remark(f"   {command}") for command in _next_commands(self.out)),
        ]

    def data(self) -> dict[str, Any]:
        """Return what each stage measured."""
        return {
            "out": str(self.out),
            "text": asdict(self.text),
            "pretraining": self.pretraining,
            "blanks": [
                {"text": sentence.text, "blanks": [asdict(b[0]) for b in sentence.blanks]}
                for sentence in self.filled
            ],
            "tuning": self.tuning,
            "report": str(self.report),
        }


@dataclass(frozen=True)
class Demo(Verb[DemoResult]):
    """Pretrain, fill blanks and fine-tune on the documentation found on this machine.

        foreword.demo("demo")

    What was done before in the same folder is kept, so a demo that was stopped continues.

    Attributes:
        out: folder to create, or to continue.
        quick: one minute, to see that it runs; it learns nothing.
        progress: whether to show the progress, or what shows it.
    """

    out: PathName
    quick: bool = False
    progress: Annotated[bool | ProgressDisplay, PYTHON_ONLY] = True

    def __call__(self) -> DemoResult:
        from foreword.demonstration import walkthrough

        out = Path(self.out)
        command = f"foreword demo --out {shlex.quote(str(out))}{' --quick' * self.quick}"
        demo = walkthrough.Demo(out, is_quick=self.quick)
        try:
            with progress_of(self.progress) as display:
                return _walk(demo, display)
        except KeyboardInterrupt as error:
            how = f"{error}" or "stopped"
            raise KeyboardInterrupt(f"{how}; the same command continues: {command}") from None


def _walk(demo: walkthrough.Demo, display: ProgressDisplay) -> DemoResult:
    """Run all stages, and tell of each as it is done.

    Raises:
        KeyboardInterrupt: pretraining was stopped, and has saved.
    """
    display.note("1  The text: English documentation of the Python packages on this machine")
    counts, was_there = demo.read(display.stage("reading text"))
    for line in _lines_on_text(counts, was_there=was_there):
        display.note(line)

    display.note("2  Pretraining: an encoder learns to predict masked words")
    if demo.is_pretrained():
        display.note("   done before")
    else:
        if not demo.pretrain(_DemoProgress(display, "   ")):
            raise KeyboardInterrupt("stopped and saved")
    measured = demo.measure(display.stage)
    for line in _lines_on_pretraining(measured):
        display.note(line)

    display.note("3  Blanks: how it fills masked words in sentences it has not seen")
    filled = demo.fill()
    for sentence in filled:
        display.note(f"   {sentence.text}   ({_others(sentence)})")

    display.note(f"4  Fine-tuning: which of {len(counts.labels)} packages is a passage about?")
    display.note(f"   {', '.join(counts.labels)}; their names are removed from the passages")
    tuned, was_there = demo.tune(display.stage("tuning"))
    if was_there:
        display.note("   done before; its scores:")
    return DemoResult(demo.out, counts, measured, filled, tuned, demo.report())


class _DemoProgress(Prefixed):
    """A live bar, and a line per evaluation."""

    _advance: Callable[..., None]

    def stage(self, name: str) -> Callable[..., None]:
        """Begin a stage."""
        self._advance = self._progress.stage(name)
        return self._advance

    def record(self, record: dict[str, Any], progress: float) -> None:
        """Update the bar; print a line for a held-out loss."""
        if record["kind"] == "train":
            self._advance(progress, 1.0, f"loss {record['loss']:.3f}")
        if record["kind"] == "heldout":
            loss, seconds = record["loss"], record["seconds"]
            self.note(f"{seconds:4.0f} s, step {record['step']:,}: loss {loss:.2f}")


def _lines_on_text(counts: CorpusCounts, *, was_there: bool) -> list[str]:
    state = "read before" if was_there else "read, never imported"
    return [
        f"   {counts.docstrings:,} docstrings in {counts.files:,} files of {counts.packages} "
        f"packages ({state}; {counts.unread:,} files could not be parsed)",
        f"   {counts.documents:,} documents with {counts.words:,} words of prose to pretrain on; "
        f"{counts.repeated:,} duplicate paragraphs removed",
        f"   {counts.test_documents:,} documents held out with their files for the test in 4; "
        f"{counts.shared:,} of them share 8 words in a row with training text and are left out",
    ]


def _lines_on_pretraining(measured: Mapping[str, Any]) -> list[str]:
    unigram = measured["unigram"]
    unigram_loss = f"{unigram:.2f} by word frequencies alone, " if unigram is not None else ""
    return [
        f"   {measured['parameters']:,} parameters read {measured['tokens']:,} tokens in "
        f"{measured['seconds']:.0f} s",
        f"   nats per masked token: {measured['before']:.2f} at the start, {unigram_loss}"
        f"{measured['after']:.2f} now, on text it has not seen",
    ]


def _others(filled: FilledText) -> str:
    blank = filled.blanks[0]
    first = f"{blank[0].probability:.0%}"
    return f"{first}; then {', '.join(candidate.text for candidate in blank[1:])}"


def _score_row(row: Mapping[str, Any]) -> dict[str, Any]:
    def score(metric: str) -> str:
        deviation = row.get(f"{metric}_std")
        return f"{row[metric]:.3f}" + (f" ± {deviation:.3f}" if deviation is not None else "")

    name = f"{row['start']}, {row['strategy']}" if "lr" in row else row["strategy"]
    scores = {"": name, "accuracy": score("accuracy"), "macro F1": score("f1")}
    return scores | {column: row.get(column, "") for column in SETTING_COLUMNS}


def _lines_on_tuning(counts: CorpusCounts, tuned: Mapping[str, Any]) -> list[str]:
    from foreword.tuning.bag_of_words import NAME as BAG_OF_WORDS
    from foreword.tuning.margins import Margin, points
    from foreword.tuning.scores import train_count

    margins = {table["over"]: Margin(**table) for table in tuned["margins"]}
    scratch, words = margins["from scratch, full"], margins[BAG_OF_WORDS]
    return [
        f"{train_count(tuned['examples'])}; {counts.test:,} test passages from files that "
        "pretraining did not read; mean ± standard deviation of "
        f"{tuned['rows'][0]['seeds']} seeds",
        f"pretraining, in points of accuracy: {points(scratch)} over the same network from "
        f"scratch, {points(words)} over a bag of words; 95 % intervals over passages and seeds",
        "minutes only begin to teach it; a serious run takes hours and more text",
    ]


def _next_commands(out: Path) -> list[str]:
    run, text = (shlex.quote(str(out / name)) for name in ("run", "text"))
    return [
        f'foreword fill {run} "The input must be a [MASK] of integers."',
        f'foreword score {run} "This function returns a list of strings."',
        f"foreword tune {run} --train {text}/train.jsonl --dev {text}/test.jsonl "
        "--lr 1e-3 --batch 8 --epochs 4 --seeds 1 --name mine",
    ]
