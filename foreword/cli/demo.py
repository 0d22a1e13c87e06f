"""`foreword demo`: from text to a fine-tuned model in a few minutes, offline."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli import console
from foreword.cli._model_options import Json, Quiet

SETTING_COLUMNS = ("lr", "epochs")

if TYPE_CHECKING:
    from foreword.api.progress import ProgressDisplay
    from foreword.demonstration.corpus import CorpusCounts
    from foreword.evaluation.filling import FilledText


def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder to create, or to continue.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="One minute, to see that it runs; it learns nothing.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Pretrain, fill blanks and fine-tune on the documentation found on this machine.

    What was done before in the same folder is kept, so a demo that was stopped continues.
    """
    say = console.say if json else _print
    try:
        return _walk(out, say, is_quick=quick, is_quiet=quiet, as_json=json)
    except KeyboardInterrupt:
        say(f"   stopped; the same command continues: {_command(out, is_quick=quick)}")
        return 130


def _walk(
    out: Path, print_line: Callable[[str], None], *, is_quick: bool, is_quiet: bool, as_json: bool
) -> int:
    """Run all stages and report each as it is done; return the exit status."""
    from foreword.api.progress import progress_of
    from foreword.demonstration.walkthrough import Demo

    say = (lambda text: None) if is_quiet else print_line
    walkthrough = Demo(out, is_quick=is_quick)
    say("1  The text: English documentation of the Python packages on this machine")
    with progress_of(not is_quiet) as display:
        counts, was_there = walkthrough.read(display.stage("reading text"))
    _say_text(say, counts, was_there=was_there)

    say("2  Pretraining: an encoder learns to predict masked words")
    if not _pretrain(walkthrough, say, progress_of(not is_quiet)):
        command = _command(out, is_quick=is_quick)
        print_line(f"   stopped and saved; the same command continues: {command}")
        return 130
    with progress_of(not is_quiet) as display:
        measured = walkthrough.measure(display.stage)
    _say_learned(say, measured)

    say("3  Blanks: how it fills masked words in sentences it has not seen")
    filled = walkthrough.fill()
    for sentence in filled:
        say(f"   {sentence.text}   ({_others(sentence)})")

    say(f"4  Fine-tuning: which of {len(counts.labels)} packages is a passage about?")
    say(f"   {', '.join(counts.labels)}; their names are removed from the passages")
    with progress_of(not is_quiet) as display:
        tuned, was_there = walkthrough.tune(display.stage("tuning"))
    if was_there:
        say("   done before; its scores:")
    if not as_json:
        _show(tuned["rows"])
    _say_tuned(say, counts, tuned)

    page = walkthrough.report()
    print_line(f"{'' if is_quiet else '5  '}The report: {page}")
    say("Try next:")
    for command in _next_commands(out):
        say(f"   {command}")
    if as_json:
        blanks = [
            {"text": sentence.text, "blanks": [asdict(b[0]) for b in sentence.blanks]}
            for sentence in filled
        ]
        document = {"out": str(out), "text": asdict(counts), "pretraining": measured}
        console.emit(document | {"blanks": blanks, "tuning": tuned, "report": str(page)})
    return 0


def _command(out: Path, *, is_quick: bool) -> str:
    return f"foreword demo --out {shlex.quote(str(out))}" + (" --quick" if is_quick else "")


def _pretrain(walkthrough: Any, say: Callable[[str], None], progress: ProgressDisplay) -> bool:
    if walkthrough.is_pretrained():
        say("   done before")
        return True
    with progress as display:
        reporter = _DemoReporter(display, say)
        return bool(walkthrough.pretrain(reporter, reporter.stage))


class _DemoReporter:
    """A live bar, and a line per evaluation."""

    def __init__(self, display: ProgressDisplay, say: Callable[[str], None]) -> None:
        self._display, self._say = display, say
        self._advance: Callable[..., None] = lambda *_: None

    def stage(self, name: str) -> Callable[..., None]:
        """Begin a stage."""
        self._advance = self._display.stage(name)
        return self._advance

    def note(self, text: str) -> None:
        """Print a line."""
        self._say(f"   {text}")

    def warn(self, text: str) -> None:
        """Print a line, even where others are not wanted."""
        self._display.warn(text)

    def record(self, record: dict[str, Any], progress: float) -> None:
        """Update the bar; print a line for a held-out loss."""
        if record["kind"] == "train":
            self._advance(progress, 1.0, f"loss {record['loss']:.3f}")
        if record["kind"] == "heldout":
            seconds = record["seconds"]
            self._say(f"   {seconds:4.0f} s, step {record['step']:,}: loss {record['loss']:.2f}")


def _print(text: str) -> None:
    console.out.print(text)


def _say_text(say: Callable[[str], None], counts: CorpusCounts, *, was_there: bool) -> None:
    state = "read before" if was_there else "read, never imported"
    say(
        f"   {counts.docstrings:,} docstrings in {counts.files:,} files of {counts.packages} "
        f"packages ({state}; {counts.unread:,} files could not be parsed)"
    )
    say(
        f"   {counts.documents:,} documents with {counts.words:,} words of prose to pretrain on; "
        f"{counts.repeated:,} duplicate paragraphs removed"
    )
    say(
        f"   {counts.test_documents:,} documents held out with their files for the test in 4; "
        f"{counts.shared:,} of them share 8 words in a row with training text and are left out"
    )


def _say_learned(say: Callable[[str], None], measured: dict[str, Any]) -> None:
    unigram = measured["unigram"]
    unigram_loss = f"{unigram:.2f} by word frequencies alone, " if unigram is not None else ""
    say(
        f"   {measured['parameters']:,} parameters read {measured['tokens']:,} tokens in "
        f"{measured['seconds']:.0f} s"
    )
    say(
        f"   nats per masked token: {measured['before']:.2f} at the start, {unigram_loss}"
        f"{measured['after']:.2f} now, on text it has not seen"
    )


def _others(filled: FilledText) -> str:
    blank = filled.blanks[0]
    first = f"{blank[0].probability:.0%}"
    return f"{first}; then {', '.join(candidate.text for candidate in blank[1:])}"


def _show(rows: list[dict[str, Any]]) -> None:
    def score(row: dict[str, Any], metric: str) -> str:
        deviation = row.get(f"{metric}_std")
        return f"{row[metric]:.3f}" + (f" ± {deviation:.3f}" if deviation is not None else "")

    names = [
        f"{row['start']}, {row['strategy']}" if "lr" in row else row["strategy"] for row in rows
    ]
    cells = [
        [
            name,
            score(row, "accuracy"),
            score(row, "f1"),
            *(row.get(key, "") for key in SETTING_COLUMNS),
        ]
        for name, row in zip(names, rows, strict=True)
    ]
    console.table("", ["", "accuracy", "macro F1", *SETTING_COLUMNS], cells)


def _say_tuned(say: Callable[[str], None], counts: CorpusCounts, tuned: dict[str, Any]) -> None:
    from foreword.tuning.bag_of_words import NAME as BAG_OF_WORDS
    from foreword.tuning.margins import Margin, points
    from foreword.tuning.result import train_count

    margins = {table["over"]: Margin(**table) for table in tuned["margins"]}
    scratch, words = margins["from scratch, full"], margins[BAG_OF_WORDS]
    say(
        f"   {train_count(tuned['examples'])}; {counts.test:,} test passages from files that "
        f"pretraining did not read; mean ± standard deviation of "
        f"{tuned['rows'][0]['seeds']} seeds"
    )
    say(
        f"   pretraining, in points of accuracy: {points(scratch)} over the same network from "
        f"scratch, {points(words)} over a bag of words; 95 % intervals over passages and seeds"
    )
    say("   minutes only begin to teach it; a serious run takes hours and more text")


def _next_commands(out: Path) -> list[str]:
    run, text = (shlex.quote(str(out / name)) for name in ("run", "text"))
    return [
        f'foreword fill {run} "The input must be a [MASK] of integers."',
        f'foreword score {run} "This function returns a list of strings."',
        f"foreword tune {run} --train {text}/train.jsonl --dev {text}/test.jsonl "
        "--lr 1e-3 --batch 8 --epochs 4 --seeds 1 --name mine",
    ]
