"""Whether the grammatical one of two sentences is likelier: "The cats sleep", "The cats sleeps"."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from foreword.errors import UserError
from foreword.evaluation.passages import Passage, method_of
from foreword.evaluation.prompting import PromptedModel
from foreword.probes._contract import FilePath
from foreword.probes._files import evenly, files_of, rows_of
from foreword.probes._scoring import score_groups
from foreword.probes._suite import Answer, Question, Suite, best
from foreword.settings.ranges import CountOrZero
from foreword.tables.files import IN_FOLDERS
from foreword.tables.read import read_table

GOOD, BAD, PARADIGM = "sentence_good", "sentence_bad", "UID"  # columns of BLiMP
PHENOMENON = "linguistics_term"


@dataclass(frozen=True)
class MinimalPairs(Suite):
    """How often the grammatical one of two sentences is the likelier one: accuracy by paradigm.

    Two sentences that are equally likely, such as two with the same unknown word, count one half;
    chance is 0.5. Paradigms come in mirrors, of which one has the word in the grammatical sentence
    that the other has in the ungrammatical one; a preference for it is right in one and wrong in
    the other, so only means over both say anything.

    Most of this is learned from the first 10 to 100 million words, long before facts and what tasks
    need, so it shows early what pretraining does.

    Attributes:
        files: the pairs in the layout of BLiMP: a file, a folder or a pattern. The columns are
            `sentence_good`, `sentence_bad` and `UID`, the paradigm; default: the file's name; and
            perhaps `linguistics_term`, the phenomenon, of which the table has means.
        limit: number of pairs of each paradigm, evenly spaced; 0 for all.

    Also called: blimp.
    Reference: Warstadt et al. 2020 (BLiMP); Salazar et al. 2020; Zhang et al. 2021.
    """

    heading: ClassVar[str] = "minimal pairs: how often the grammatical sentence is the likelier one"
    subset: ClassVar[str] = "paradigm"

    files: FilePath
    limit: CountOrZero = 100

    def questions(self) -> list[Question]:
        """Return the pairs by paradigm, the grammatical sentence first.

        Raises:
            UserError: there is no such file, or a row lacks a sentence.
        """
        paradigms: dict[str, list[Question]] = {}
        for file in files_of(self.files, "probe.files", IN_FOLDERS):
            for line, row in rows_of(read_table(file), (GOOD, BAD)):
                good, bad = (str(row.get(column) or "") for column in (GOOD, BAD))
                if not good.strip() or not bad.strip():
                    raise UserError(f"{file}:{line}: no sentence in {GOOD} or in {BAD}")
                name = str(row.get(PARADIGM) or file.name.partition(".")[0])
                group = str(row.get(PHENOMENON) or "")
                where = f"{file.name}:{line}"
                pair = Question(where, name, good, good, (good, bad), group=group)
                paradigms.setdefault(name, []).append(pair)
        if not paradigms:
            raise UserError(f"probe.files: {self.files}: no pairs in it")
        return [pair for pairs in paradigms.values() for pair in evenly(pairs, self.limit)]

    def method(self, prompted: PromptedModel) -> str:
        """Return how the model scores sentences.

        Raises:
            UserError: it cannot.
        """
        return method_of(prompted)

    def answers(self, prompted: PromptedModel, questions: Sequence[Question]) -> Iterator[Answer]:
        """Yield the likelier sentence of each pair."""
        pairs = [[Passage(sentence) for sentence in pair.options] for pair in questions]
        for pair, scores in zip(questions, score_groups(prompted, pairs), strict=True):
            nats = tuple(score.nats for score in scores)
            chosen, correct = best(nats, right=0)
            unknown = sum(score.unknown for score in scores)
            response = pair.options[chosen] if correct in (0, 1) else ""
            is_cut = any(score.is_cut for score in scores)
            yield Answer(response, correct, nats, unknown, is_cut=is_cut)
