"""`foreword demo`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foreword.display.progress import ProgressDisplay
from foreword.display.results import Facts, Part, Remark, Result, ResultTable
from foreword.runs.stages import Prefixed
from foreword.verbs._contract import PathName, Verb
from foreword.verbs._groups import ShowsProgress

if TYPE_CHECKING:
    from foreword.demonstration import walkthrough
    from foreword.demonstration.corpus import CorpusCounts
    from foreword.evaluation.filling import FilledText


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
        from foreword.demonstration import narration

        return [
            ResultTable([narration.score_row(row) for row in self.tuning["rows"]]),
            *map(Remark, narration.lines_on_tuning(self.text, self.tuning)),
            Facts({"report": self.report}),
            Remark("Try next:"),
            *(Remark(f"   {command}") for command in narration.next_commands(self.out)),
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
class Demo(ShowsProgress, Verb[DemoResult]):
    """Pretrain, fill blanks and fine-tune on the documentation found on this machine.

        foreword.demo("demo")

    What was done before in the same folder is kept, so a demo that was stopped continues.

    Attributes:
        out: folder to create, or to continue.
        quick: one minute, to see that it runs; it learns nothing.
    """

    out: PathName
    quick: bool = False

    def __call__(self) -> DemoResult:
        from foreword.demonstration import walkthrough

        out = Path(self.out)
        command = f"foreword demo --out {shlex.quote(str(out))}{' --quick' * self.quick}"
        demo = walkthrough.Demo(out, is_quick=self.quick)
        try:
            with self.display() as display:
                return _walk(demo, display)
        except KeyboardInterrupt as error:
            how = f"{error}" or "stopped"
            raise KeyboardInterrupt(f"{how}; the same command continues: {command}") from None


def _walk(demo: walkthrough.Demo, display: ProgressDisplay) -> DemoResult:
    """Run all stages, and tell of each as it is done."""
    from foreword.demonstration import narration

    display.note("1  The text: English documentation of the Python packages on this machine")
    counts, was_there = demo.read(display.stage("reading text"))
    for line in narration.lines_on_text(counts, was_there=was_there):
        display.note(line)

    display.note("2  Pretraining: an encoder learns to predict masked words")
    if demo.is_pretrained():
        display.note("   done before")
    else:
        if not demo.pretrain(_DemoProgress(display, "   ")):
            raise KeyboardInterrupt("stopped and saved")
    measured = demo.measure(display.stage)
    for line in narration.lines_on_pretraining(measured):
        display.note(line)

    display.note("3  Blanks: how it fills masked words in sentences it has not seen")
    filled = demo.fill()
    for sentence in filled:
        display.note(f"   {sentence.text}   ({narration.other_fillings(sentence)})")

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
