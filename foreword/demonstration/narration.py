"""What the demo says of each of its stages, in words for somebody who has not seen any."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foreword.demonstration.corpus import CorpusCounts
from foreword.evaluation.filling import FilledText
from foreword.evaluation.margins import Margin, points
from foreword.tuning.bag_of_words import NAME as BAG_OF_WORDS
from foreword.tuning.scores import Scores, train_count

SETTING_COLUMNS = ("lr", "epochs")


def lines_on_text(counts: CorpusCounts, *, was_there: bool) -> list[str]:
    """Return how much text there is, and how much of it is held out."""
    state = "read before" if was_there else "read, never imported"
    return [
        f"   {counts.docstrings:,} docstrings in {counts.files:,} files of {counts.packages} "
        f"packages ({state}; {counts.unread:,} files could not be parsed)",
        f"   {counts.documents:,} documents with {counts.words:,} words of prose to pretrain on; "
        f"{counts.repeated:,} duplicate paragraphs removed",
        f"   {counts.test_documents:,} documents held out with their files for the test in 4; "
        f"{counts.shared:,} of them share 8 words in a row with training text and are left out",
    ]


def lines_on_pretraining(measured: Mapping[str, Any]) -> list[str]:
    """Return how much was read, and what was learned from it."""
    unigram = measured["unigram"]
    unigram_loss = f"{unigram:.2f} by word frequencies alone, " if unigram is not None else ""
    return [
        f"   {measured['parameters']:,} parameters read {measured['tokens']:,} tokens in "
        f"{measured['seconds']:.0f} s",
        f"   nats per masked token: {measured['before']:.2f} at the start, {unigram_loss}"
        f"{measured['after']:.2f} now, on text it has not seen",
    ]


def other_fillings(filled: FilledText) -> str:
    """Return the probability of the first candidate, and the others."""
    blank = filled.blanks[0]
    first = f"{blank[0].probability:.0%}"
    return f"{first}; then {', '.join(candidate.text for candidate in blank[1:])}"


def score_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of scores as people read it."""
    scores, names = Scores.of(row), {"accuracy": "accuracy", "macro F1": "f1"}
    cells = {shown: str(scores.metrics[metric]) for shown, metric in names.items()}
    return {"": scores.name, **cells} | {name: row.get(name, "") for name in SETTING_COLUMNS}


def lines_on_tuning(counts: CorpusCounts, tuned: Mapping[str, Any]) -> list[str]:
    """Return how the scores were made, and what pretraining was worth."""
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


def next_commands(out: Path) -> list[str]:
    """Return commands to try with what the demo made."""
    run, text = (shlex.quote(str(out / name)) for name in ("run", "text"))
    return [
        f'foreword fill {run} "The input must be a [MASK] of integers."',
        f'foreword score {run} "This function returns a list of strings."',
        f"foreword tune {run} --train {text}/train.jsonl --dev {text}/test.jsonl "
        "--lr 1e-3 --batch 8 --epochs 4 --seeds 1 --name mine",
    ]
