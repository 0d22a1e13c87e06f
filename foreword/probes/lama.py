"""Facts in a blank: "Dante was born in [MASK]"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from foreword.errors import UserError
from foreword.evaluation.passages import Passage, method_of, score_passages
from foreword.probes._contract import FilePath
from foreword.probes._files import evenly, files_of, rows_of
from foreword.probes._suite import Answer, Question, Suite
from foreword.runs.trained_model import TrainedModel
from foreword.settings.ranges import CountOrZero
from foreword.tables.columns import text_of
from foreword.tables.files import IN_FOLDERS
from foreword.tables.read import read_table
from foreword.types import Array

BLANK, SENTENCES, ANSWER, RELATION = "[MASK]", "masked_sentences", "obj_label", "pred"
TOP = 10


@dataclass(frozen=True)
class Lama(Suite):
    """How often a model's likeliest word for a blank is the right one: precision at 1 by relation.

    An answer counts if each of its tokens is the likeliest; `in_first_10` if each is among the
    first ten. A model that reads from left to right does not see what stands after the blank, and
    cannot answer at the beginning of a sentence. `chance` is what the most frequent answer of the
    relation reaches everywhere.

    Attributes:
        files: facts in the layout of LAMA (`masked_sentences`, of which the first is asked,
            `obj_label`, and perhaps `pred`, the relation; default: the file's name): a file, a
            folder with all folders in it, or a pattern. A sentence that occurs twice is asked once.
        limit: number of facts of each relation, evenly spaced; 0 for all.

    Reference: Petroni et al. 2019.
    Differs from the paper: answers of several tokens count too.
    """

    heading: ClassVar[str] = "LAMA: how often the likeliest word for a blank is the right one"
    subset: ClassVar[str] = "relation"

    files: FilePath
    limit: CountOrZero = 0

    def questions(self) -> list[Question]:
        """Return the facts by relation.

        Raises:
            UserError: there is no such file, or a row has no blank or no answer.
        """
        relations: dict[str, dict[tuple[str, str], Question]] = {}
        for file in _files(self.files):
            for line, row in rows_of(read_table(file), (SENTENCES, ANSWER)):
                where = f"{file}:{line}"
                sentence, answer = _sentence(row, where), text_of(row.get(ANSWER), where).strip()
                if not answer:
                    raise UserError(f"{where}: no answer in {ANSWER}")
                relation = str(row.get(RELATION) or file.name.partition(".")[0])
                name = f"{file.parent.name}/{file.name}:{line}"
                question = Question(name, relation, sentence, answer)
                relations.setdefault(relation, {}).setdefault((sentence, answer), question)
        if not relations:
            raise UserError(f"probe.files: {self.files}: no facts in it")
        facts = (
            evenly(list(of_relation.values()), self.limit) for of_relation in relations.values()
        )
        return [fact for of_relation in facts for fact in of_relation]

    def method(self, prompted: TrainedModel) -> str:
        """Return how the model fills blanks.

        Raises:
            UserError: it cannot.
        """
        how = method_of(prompted, ranks=True)
        return f"{how}; what stands after the blank is not read" if prompted.continues else how

    def answers(self, prompted: TrainedModel, questions: Sequence[Question]) -> Iterator[Answer]:
        """Yield whether each answer is the likeliest; the score is its worst token's rank."""
        passages = {}
        for number, question in enumerate(questions):
            before, _, after = question.text.partition(BLANK)
            if not prompted.continues or before.strip():
                # A space before it is the answer's, so that its first token begins a word.
                space = before[len(before.rstrip()) :]
                passages[number] = Passage(
                    space + question.answer, before.rstrip(), "" if prompted.continues else after
                )
        scores = score_passages(prompted, list(passages.values()), ranks=True)
        for number, question in enumerate(questions):
            if number not in passages:
                yield Answer("", 0.0, (float("inf"),), extra=(0.0,))
                continue
            score = next(scores)
            is_right = score.is_likeliest
            response = question.answer if is_right else ""
            worst = float("inf") if score.unknown else float(score.ranks.max())
            in_first = (float(worst < TOP),)
            yield Answer(
                response, float(is_right), (worst,), score.unknown, in_first, is_cut=score.is_cut
            )

    def extra_scores(self, values: Array) -> Mapping[str, float]:
        """Return the precision at ten."""
        return {f"in_first_{TOP}": float(values[:, 0].mean())}

    def chance(self, questions: Sequence[Question]) -> float:
        """Return the precision of answering with the most frequent answer of each relation."""
        relations: dict[str, list[str]] = {}
        for question in questions:
            relations.setdefault(question.subset, []).append(question.answer)
        right = sum(Counter(answers).most_common(1)[0][1] for answers in relations.values())
        return right / len(questions)

    def remarks(self, prompted: TrainedModel, questions: Sequence[Question]) -> list[str]:
        """Return how many questions the model cannot be asked."""
        if not prompted.continues:
            return []
        first = sum(not question.text.partition(BLANK)[0].strip() for question in questions)
        return [f"{first:,} blanks begin a sentence and count as wrong"] if first else []


def _files(source: str) -> list[Path]:
    """Return the files of a source, those of folders in a folder too."""
    folder = Path(source).expanduser()
    if folder.is_dir():
        inner = sorted(path for path in folder.rglob("*.jsonl*") if path.is_file())
        return inner or files_of(source, "probe.files", IN_FOLDERS)
    return files_of(source, "probe.files", IN_FOLDERS)


def _sentence(row: Mapping[str, Any], where: str) -> str:
    """Return the sentence that is asked."""
    sentences = row.get(SENTENCES)
    sentence = text_of(
        sentences[0] if isinstance(sentences, list) and sentences else sentences, where
    )
    if sentence.count(BLANK) != 1:
        raise UserError(f"{where}: expected one {BLANK} in the first of {SENTENCES}")
    return sentence
