"""Whether the grammatical one of two sentences is likelier: "The cats sleep", "The cats sleeps"."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from foreword.errors import UserError
from foreword.evaluation.prompting import PromptedModel
from foreword.evaluation.scoring import measure_of, score_texts
from foreword.probes._contract import FilePath, Finding, ProbedModel, Row
from foreword.probes._files import evenly, files_of
from foreword.probes._intervals import LEVEL, wilson
from foreword.probes._marks import MAX_RUNS, run_style, title
from foreword.ranges import CountOrZero, Ranged
from foreword.tuning.table import read_table
from foreword.tuning.table_files import FORMATS

GOOD, BAD, PARADIGM = "sentence_good", "sentence_bad", "UID"  # columns of BLiMP
ALL = "all paradigms"
CLOSENESS = 1e-6  # relative difference of two sums that are equal in float32


class MinimalPair(NamedTuple):
    """Two sentences that differ in one thing, which makes the second one wrong."""

    good: str
    bad: str


@dataclass(frozen=True)
class MinimalPairs(Ranged):
    """How often the grammatical one of two sentences is the likelier one: accuracy by paradigm.

    A causal model and an n-gram model give a sentence its log-likelihood, a masked one its
    pseudo-log-likelihood: each token is masked in turn. Two sentences that are equally likely, such
    as two with the same unknown word, count one half; chance is 0.5.

    Most of this is learned from the first 10 to 100 million words, long before facts and what tasks
    need, so it shows early what pretraining does.

    Attributes:
        files: the pairs in the layout of BLiMP: a file, a folder or a pattern. The columns are
            `sentence_good`, `sentence_bad` and `UID`, the paradigm; default: the file's name.
        limit: number of pairs of each paradigm, evenly spaced; 0 for all.

    Reference: Warstadt et al. 2020 (BLiMP); Salazar et al. 2020; Zhang et al. 2021.
    """

    reads_text: ClassVar[bool] = False

    files: FilePath
    limit: CountOrZero = 100

    def measure(self, models: Sequence[ProbedModel]) -> Finding:
        """Measure the accuracy of each model by paradigm.

        Raises:
            UserError: the pairs cannot be read, or a model gives sentences no probability.
        """
        paradigms = read_minimal_pairs(self.files, self.limit)
        first = next(iter(paradigms.values()))[0]
        for probed in models:
            _require_scores(probed.trained, first)
        details: list[Row] = []
        notes = []
        for probed in models:
            counts = _count_by_paradigm(probed.trained, paradigms)
            counts[ALL] = _Count(*(sum(column) for column in zip(*counts.values(), strict=True)))
            details += [
                {"run": probed.label, "paradigm": name, **count.as_row()}
                for name, count in counts.items()
            ]
            notes.append(f"{probed.label}: {_note(probed.trained, counts[ALL])}")
        keys = ("run", "paradigm", "accuracy", "low", "high")
        rows = [{key: row[key] for key in keys} for row in details]
        notes.append(f"a tie counts one half; low, high: {LEVEL:.0%} Wilson interval")
        return Finding(
            title="minimal pairs: how often the grammatical sentence is the likelier one",
            rows=rows,
            details=details,
            notes=notes,
            plot=lambda figure: _plot(figure, rows),
            measure="accuracy",
            scores={row["run"]: row["accuracy"] for row in rows if row["paradigm"] == ALL},
        )


def read_minimal_pairs(files: str, limit: int) -> dict[str, Sequence[MinimalPair]]:
    """Return pairs of sentences by paradigm.

    Args:
        files: a file, a folder or a pattern.
        limit: number of pairs of each paradigm; 0 for all.

    Raises:
        UserError: there is no such file, or a row lacks a sentence.
    """
    paradigms: dict[str, list[MinimalPair]] = {}
    for file in files_of(files, "probe.files", FORMATS):
        for line, row in read_table(file).rows():
            good, bad = (str(row.get(column) or "") for column in (GOOD, BAD))
            if not good.strip() or not bad.strip():
                raise UserError(f"{file}:{line}: no sentence in {GOOD} or in {BAD}")
            name = str(row.get(PARADIGM) or file.name.partition(".")[0])
            paradigms.setdefault(name, []).append(MinimalPair(good, bad))
    if not paradigms:
        raise UserError(f"probe.files: {files}: no pairs in it")
    return {name: evenly(pairs, limit) for name, pairs in paradigms.items()}


def _require_scores(prompted: PromptedModel, pair: MinimalPair) -> None:
    """Check that a model gives sentences a probability.

    Raises:
        UserError: it does not.
    """
    if prompted.answers:
        raise UserError(
            f"{prompted.name}: this {prompted.family} scores a text as the answer to a source, and "
            "a sentence of a pair has none"
        )
    list(score_texts(prompted, pair))


class _Count(NamedTuple):
    """The number of pairs of a paradigm, and how many of them the model got right or tied."""

    pairs: int
    right: int
    ties: int
    unknown: int

    def as_row(self) -> Row:
        """Return the accuracy with its interval and what it was computed from."""
        correct = self.right + self.ties / 2
        low, high = wilson(correct, self.pairs)
        return {"accuracy": correct / self.pairs, "low": low, "high": high, **self._asdict()}


def _count_by_paradigm(
    prompted: PromptedModel, paradigms: Mapping[str, Sequence[MinimalPair]]
) -> dict[str, _Count]:
    """Return the counts of each paradigm."""
    sentences = (text for pairs in paradigms.values() for pair in pairs for text in pair)
    scores = score_texts(prompted, sentences)
    counts = {}
    for name, pairs in paradigms.items():
        scored = [(next(scores), next(scores)) for _ in pairs]
        # Equal as far as float32 tells: sentences of the same tokens may be in different batches.
        ties = [math.isclose(good.nats, bad.nats, rel_tol=CLOSENESS) for good, bad in scored]
        right = [good.nats < bad.nats for good, bad in scored]
        counts[name] = _Count(
            pairs=len(pairs),
            right=sum(r and not tie for r, tie in zip(right, ties, strict=True)),
            ties=sum(ties),
            unknown=sum(bool(good.unknown or bad.unknown) for good, bad in scored),
        )
    return counts


def _note(prompted: PromptedModel, count: _Count) -> str:
    """Return what a model was measured by, and on how many pairs."""
    unknown = f"; with unknown tokens: {count.unknown:,}" if count.unknown else ""
    return f"{measure_of(prompted)} of {count.pairs:,} pairs; ties: {count.ties:,}{unknown}"


def _plot(figure: Any, rows: Sequence[Row]) -> None:
    """Plot the accuracy on each paradigm as bars with their intervals, the runs side by side."""
    paradigms = list(dict.fromkeys(str(row["paradigm"]) for row in rows))
    names = list(dict.fromkeys(str(row["run"]) for row in rows))
    shown = names[:MAX_RUNS]
    height = 0.8 / len(shown)
    figure.set_size_inches(7.6, max(3.0, 1.6 + 0.18 * len(paradigms) * (len(shown) + 0.5)))
    axes = figure.subplots()
    for n, run in enumerate(shown):
        own = [row for row in rows if row["run"] == run]
        accuracy, low, high = (
            np.array([row[key] for row in own]) for key in ("accuracy", "low", "high")
        )
        axes.barh(
            np.arange(len(paradigms)) + (n - (len(shown) - 1) / 2) * height,
            accuracy,
            height=height,
            xerr=np.clip([accuracy - low, high - accuracy], 0, None),
            error_kw={"elinewidth": 0.8, "ecolor": "0.3"},
            color=run_style(n)["color"],
            label=f"{run} ({own[-1]['accuracy']:.3f})",
        )
    axes.axvline(0.5, color="gray", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(paradigms)), paradigms)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel("accuracy; dashed: chance")
    axes.set_title(title("Minimal pairs: is the grammatical sentence likelier?", len(names)))
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
