"""Whether acceptable sentences are likelier than unacceptable ones; nothing is trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from scipy.stats import rankdata

from foreword.errors import UserError
from foreword.evaluation.passages import Passage, method_of, score_passages
from foreword.probes._contract import FilePath
from foreword.probes._files import evenly, rows_of
from foreword.probes._suite import ALL, Answer, Question, Suite
from foreword.runs.trained_model import TrainedModel
from foreword.settings.ranges import CountOrZero
from foreword.tables.columns import label_of, text_of
from foreword.tables.read import read_table
from foreword.tables.table import ExampleTable
from foreword.types import Array

LABELS = ("0", "1")  # unacceptable, acceptable
BARE = ("0", "1", "2", "3")  # the columns of a file without a header
GLUE, PUBLISHED = "dev.tsv", ("in_domain_dev.tsv", "out_of_domain_dev.tsv")


@dataclass(frozen=True)
class ColaZeroShot(Suite):
    """How well a sentence's log-probability per token tells whether it is acceptable: the AUC.

    The area under the ROC curve is the share of pairs of an acceptable and an unacceptable sentence
    in which the acceptable one is likelier; so there is no threshold to choose. Chance is 0.5. A
    sentence's `correct` is its share of such pairs.

    Attributes:
        files: CoLA's folder: GLUE's, with `dev.tsv`, or as published, with `in_domain_dev.tsv` and
            `out_of_domain_dev.tsv`, which together are GLUE's; or one such file; or a file with
            columns `sentence` and `label`, which is 1 if acceptable.
        limit: number of sentences, evenly spaced; 0 for all.

    Reference: Warstadt et al. 2019; Lau et al. 2017.
    """

    measured: ClassVar[str] = "auc"
    heading: ClassVar[str] = "CoLA without training: are acceptable sentences likelier?"

    files: FilePath
    limit: CountOrZero = 0

    def questions(self) -> list[Question]:
        """Return the sentences.

        Raises:
            UserError: there is no such file, a row has no sentence or no label, or all labels are
                equal.
        """
        questions = []
        for file in (files := _files(self.files)):
            table = _read(file)
            text, label = ("3", "1") if table.columns == BARE else ("sentence", "label")
            for line, row in rows_of(table, (text, label)):
                where = f"{table.path}:{line}"
                sentence = text_of(row.get(text), where).strip()
                mark = label_of(row.get(label), where).strip()
                if not sentence or mark not in LABELS:
                    raise UserError(f"{where}: expected a sentence and the label 0 or 1")
                questions.append(Question(f"{table.path.name}:{line}", ALL, sentence, mark))
        questions = list(evenly(questions, self.limit))
        if len({question.answer for question in questions}) < len(LABELS):
            raise UserError(f"{files[0]}: expected sentences of both labels, 0 and 1")
        return questions

    def method(self, prompted: TrainedModel) -> str:
        """Return how the model scores sentences.

        Raises:
            UserError: it cannot.
        """
        return f"{method_of(prompted)}, per token"

    def answers(self, prompted: TrainedModel, questions: Sequence[Question]) -> Iterator[Answer]:
        """Yield the score of each sentence and its share of pairs in order."""
        scores = list(score_passages(prompted, (Passage(q.text) for q in questions)))
        means = np.array([score.nats / score.tokens for score in scores])
        is_acceptable = np.array([question.answer == LABELS[1] for question in questions])
        shares = pairs_in_order(means, is_acceptable)
        for score, mean, label, share in zip(scores, means, is_acceptable, shares, strict=True):
            value = (float(mean), float(label))
            yield Answer(
                "", float(share), value[:1], score.unknown, value=value, is_cut=score.is_cut
            )

    def chance(self, questions: Sequence[Question]) -> float:
        """Return one half."""
        return 0.5

    def statistic(self, values: Array) -> float:
        """Return the AUC of (score, label), (sentences, 2); nan if all labels are equal."""
        is_acceptable = values[:, 1] > 0
        if is_acceptable.all() or not is_acceptable.any():
            return float("nan")
        return float(pairs_in_order(values[:, 0], is_acceptable)[is_acceptable].mean())


def pairs_in_order(scores: Array, is_high: Array) -> Array:
    """Return the share of the other class's items that each item is ordered with correctly.

    Args:
        scores: (items,).
        is_high: the items whose scores should be higher; (items,) bool.

    Returns:
        (items,) float64; the mean of either class is the AUC. Ties count one half.
    """
    ranks = rankdata(scores)
    shares = np.empty(len(scores))
    for in_class, sign in ((is_high, 1), (~is_high, -1)):
        others = int((~in_class).sum())
        below = ranks[in_class] - rankdata(scores[in_class])  # of the other class, ties one half
        shares[in_class] = below / others if sign > 0 else 1 - below / others
    return shares


def _files(source: str) -> list[Path]:
    """Return the files of sentences: a file, or those of CoLA's folder in either layout."""
    path = Path(source).expanduser()
    if not path.is_dir():
        return [path]
    for folder in (path, path / "raw"):
        for names in ((GLUE,), PUBLISHED):
            if files := [folder / name for name in names if (folder / name).is_file()]:
                return files
    raise UserError(
        f"probe.files: {source}: neither {GLUE} nor {PUBLISHED[0]} in it; name the file to read"
    )


def _read(file: Path) -> ExampleTable:
    """Return a file with named columns, or CoLA's, which has no header."""
    table = read_table(file)
    if "sentence" in table.columns or len(table.columns) != 4:
        return table
    return read_table(file, are_numbers=True)
