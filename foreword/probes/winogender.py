"""Whether a model's pronouns follow the share of women in an occupation: Winogender."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from foreword.errors import UserError
from foreword.evaluation.passages import Passage, method_of
from foreword.evaluation.statistics import ranks
from foreword.probes._contract import FilePath
from foreword.probes._files import rows_of
from foreword.probes._scoring import score_groups
from foreword.probes._suite import ALL, Answer, Question, Suite
from foreword.runs.trained_model import TrainedModel
from foreword.tables.columns import text_of
from foreword.tables.read import read_table
from foreword.types import Array

SENTENCES, STATISTICS = "all_sentences.tsv", "occupations-stats.tsv"
FEMALE, MALE = "female", "male"
SHARE = "bls_pct_female"


@dataclass(frozen=True)
class Winogender(Suite):
    """The rank correlation of a model's pronouns with the share of women in an occupation.

    For each occupation, how much likelier its sentences are with her pronouns than with his, on
    average; over occupations, this is correlated (Spearman) with the share of women among those who
    work in it in the US. 0 means that pronouns do not follow the statistics.

    Attributes:
        files: the folder of Winogender, with `all_sentences.tsv` and `occupations-stats.tsv`.

    Reference: Rudinger et al. 2018.
    Differs from the paper: nothing is said of which person the pronoun is; it is scored in place.
    """

    measured: ClassVar[str] = "correlation"
    heading: ClassVar[str] = "Winogender: do pronouns follow the share of women in an occupation?"
    caution: ClassVar[str] = (
        "a correlation near 0 may mean that pronouns do not follow occupations, or that the model "
        "has learned little of either; shares are those of the US"
    )

    files: FilePath

    def questions(self) -> list[Question]:
        """Return the occupations, each with its pairs of sentences.

        Raises:
            UserError: a file is missing, or no occupation is in both.
        """
        folder = Path(self.files).expanduser()
        for name in (SENTENCES, STATISTICS):
            if not (folder / name).is_file():
                raise UserError(f"probe.files: {folder / name}: no such file")
        shares = {}
        for line, row in rows_of(read_table(folder / STATISTICS), ("occupation", SHARE)):
            where = f"{folder / STATISTICS}:{line}"
            try:
                shares[text_of(row.get("occupation"), where)] = float(row[SHARE])
            except (KeyError, TypeError, ValueError):
                raise UserError(f"{where}: expected a number in {SHARE}") from None
        sides: dict[str, dict[str, str]] = {}
        for line, row in rows_of(read_table(folder / SENTENCES), ("sentid", "sentence")):
            where = f"{folder / SENTENCES}:{line}"
            name, _, side = text_of(row.get("sentid"), where).removesuffix(".txt").rpartition(".")
            sides.setdefault(name, {})[side] = text_of(row.get("sentence"), where)
        pairs: dict[str, list[tuple[str, str]]] = {}
        for name, texts in sides.items():
            if FEMALE in texts and MALE in texts:
                pairs.setdefault(name.partition(".")[0], []).append((texts[FEMALE], texts[MALE]))
        questions = [
            Question(name, ALL, name, f"{shares[name]:g}", details=tuple(of))
            for name, of in pairs.items()
            if name in shares
        ]
        if len(questions) < 3:
            raise UserError(f"{folder}: fewer than three occupations with sentences and {SHARE}")
        return questions

    def method(self, prompted: TrainedModel) -> str:
        """Return how the model scores pronouns.

        Raises:
            UserError: it cannot.
        """
        how = method_of(prompted)
        return how if prompted.continues else f"{how}, of the pronouns"

    def answers(self, prompted: TrainedModel, questions: Sequence[Question]) -> Iterator[Answer]:
        """Yield the mean of log P(hers) - log P(his) of each occupation's sentences."""
        groups = [pair for q in questions for pair in q.details]
        parts = [_pronouns(one, other) for one, other in groups]
        scores = score_groups(prompted, [side for pair in parts for side in pair])
        for question in questions:
            differences, unknown, is_cut = [], 0, False
            for _ in question.details:
                hers, his = next(scores), next(scores)
                differences.append(sum(s.nats for s in hers) - sum(s.nats for s in his))
                unknown += sum(s.unknown for s in (*hers, *his))
                is_cut |= any(s.is_cut for s in (*hers, *his))
            mean, share = float(np.mean(differences)), float(question.answer)
            response = FEMALE if mean > 0 else MALE
            is_right = float((mean > 0) == (share > 50))
            value = (mean, share)
            yield Answer(response, is_right, (mean,), unknown, value=value, is_cut=is_cut)

    def chance(self, questions: Sequence[Question]) -> float:
        """Return 0: no correlation."""
        return 0.0

    def statistic(self, values: Array) -> float:
        """Return Spearman's correlation of (preference, share), (occupations, 2)."""
        shares = [ranks(column) for column in values.T]
        if any(np.ptp(column) == 0 for column in shares):
            return float("nan")
        return float(np.corrcoef(shares[0], shares[1])[0, 1])


def _pronouns(one: str, other: str) -> tuple[list[Passage], list[Passage]]:
    """Return the words in which two sentences differ, each given the rest of its sentence."""
    words, others = one.split(" "), other.split(" ")
    if len(words) != len(others):
        return [Passage(one)], [Passage(other)]
    differ = [n for n, (a, b) in enumerate(zip(words, others, strict=True)) if a != b]
    return (
        [_word(words, n) for n in differ[:1]] or [Passage(one)],
        [_word(others, n) for n in differ[:1]] or [Passage(other)],
    )


def _word(words: Sequence[str], n: int) -> Passage:
    before, after = " ".join(words[:n]), " ".join(words[n + 1 :])
    return Passage(words[n], before and f"{before} ", after and f" {after}")
