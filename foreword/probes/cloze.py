"""Whether the right word is put in a blank: "The capital of Japan is ___"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from foreword.errors import UserError
from foreword.evaluation.passages import Passage, method_of, score_passages, tokens_of
from foreword.probes._contract import FilePath
from foreword.probes._files import evenly, files_of, rows_of
from foreword.probes._frequency import occurrences, training_text
from foreword.probes._scoring import score_groups
from foreword.probes._suite import Answer, Question, Suite, best
from foreword.runs.trained_model import TrainedModel
from foreword.settings.ranges import CountOrZero
from foreword.tables.columns import text_of
from foreword.tables.files import IN_FOLDERS
from foreword.tables.read import read_table
from foreword.types import Array

DATA = Path(__file__).parent / "data"
BLANK = "___"
TEXT, ANSWER, ALTERNATIVES, KIND, GROUP = "text", "answer", "alternatives", "kind", "group"
NAN = float("nan")


@dataclass(frozen=True)
class Cloze(Suite):
    """How often the right word for a blank is the likeliest of those offered: accuracy by kind.

    The sentences that come with it ask what pretraining is said to teach: trivia, syntax,
    coreference, topic, sentiment, reasoning and arithmetic. A causal model compares the whole
    sentences, so what stands after the blank counts; a masked model compares the words in it.

    `most_frequent` is what the option reaches that is most frequent in the model's training text,
    None if that is not there. `median_rank` is that of the right word among all tokens, 1 the
    likeliest, where it is one token; a causal model does not see what stands after it.

    Attributes:
        language: language of the sentences that come with it: `en` or `ko`.
        files: sentences of one's own instead: a file, a folder or a pattern. The columns are
            `text`, with `___` for the blank, `answer`, `alternatives` (a list, or words with spaces
            between them), and perhaps `kind` (default: the file's name) and `group`.
        by: the subsets in the table: each `kind`, or each `group` of a kind.
        limit: number of sentences of each kind, evenly spaced; 0 for all.

    Reference: Taylor 1953 (the test); Petroni et al. 2019 and Warstadt et al. 2020 (of models).
    """

    heading: ClassVar[str] = "cloze: how often the right word for a blank is the likeliest"
    subset: ClassVar[str] = "kind"

    language: Literal["en", "ko"] = "en"
    files: FilePath = ""
    by: Literal["kind", "group"] = "kind"
    limit: CountOrZero = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.files and self.language != "en":
            raise ValueError("language: chooses among the sentences that come with it, not files")

    def questions(self) -> list[Question]:
        """Return the sentences by kind.

        Raises:
            UserError: there is no such file, or a row lacks a blank, an answer or alternatives.
        """
        source = self.files or str(DATA / f"cloze_{self.language}.jsonl")
        kinds: dict[str, list[Question]] = {}
        for file in files_of(source, "probe.files", IN_FOLDERS):
            for line, row in rows_of(read_table(file), (TEXT, ANSWER, ALTERNATIVES)):
                kind = str(row.get(KIND) or file.name.partition(".")[0])
                subset = f"{kind}: {row[GROUP]}" if self.by == "group" and row.get(GROUP) else kind
                question = _question(row, subset, f"{file.name}:{line}", f"{file}:{line}")
                kinds.setdefault(kind, []).append(question)
        if not kinds:
            raise UserError(f"probe.files: {source}: no sentences in it")
        questions = [q for kind in kinds.values() for q in evenly(kind, self.limit)]
        subsets = list(dict.fromkeys(q.subset for q in questions))
        return sorted(questions, key=lambda q: subsets.index(q.subset))

    def method(self, prompted: TrainedModel) -> str:
        """Return how the model scores words.

        Raises:
            UserError: it cannot.
        """
        return method_of(prompted)

    def answers(self, prompted: TrainedModel, questions: Sequence[Question]) -> Iterator[Answer]:
        """Yield the likeliest option of each blank, whether the most frequent is right, a rank."""
        options = [[_passage(q.text, option) for option in q.options] for q in questions]
        frequent = _frequent(prompted, questions)
        ranks = _ranks(prompted, questions)
        for number, scores in enumerate(score_groups(prompted, options)):
            nats = tuple(score.nats for score in scores)
            chosen, correct = best(nats, right=0)
            unknown = sum(score.unknown for score in scores)
            more = (frequent[number], ranks.get(number, NAN))
            is_cut = any(score.is_cut for score in scores)
            response = questions[number].options[chosen]
            yield Answer(response, correct, nats, unknown, more, is_cut=is_cut)

    def extra_scores(self, values: Array) -> Mapping[str, float]:
        """Return the accuracy of the most frequent option, and the right words' median rank."""
        frequent, ranks = values.T
        ranks = ranks[~np.isnan(ranks)]
        return {
            "most_frequent": float(frequent.mean()),
            "median_rank": float(np.median(ranks)) if len(ranks) else NAN,
        }

    def remarks(self, prompted: TrainedModel, questions: Sequence[Question]) -> list[str]:
        """Return whether the training text is missing."""
        del questions
        if training_text(prompted):
            return []
        return ["most_frequent is unknown, since the training text is not there"]


def _question(row: Mapping[str, Any], subset: str, name: str, where: str) -> Question:
    """Return a row as a question; its first option is the right one."""
    text, answer = (text_of(row.get(column), where).strip() for column in (TEXT, ANSWER))
    alternatives = row.get(ALTERNATIVES)
    others = (
        alternatives if isinstance(alternatives, list) else text_of(alternatives, where).split()
    )
    options = (answer, *(text_of(other, where).strip() for other in others))
    if text.count(BLANK) != 1:
        raise UserError(f"{where}: expected one {BLANK} in {TEXT}")
    if not answer or len(options) < 2 or not all(options):
        raise UserError(f"{where}: no word in {ANSWER if not answer else ALTERNATIVES}")
    if len(set(options)) < len(options):
        raise UserError(f"{where}: an option of the blank occurs twice")
    return Question(name, subset, text, answer, options)


def _passage(text: str, option: str) -> Passage:
    """Return an option in the blank. A space before it is its own: its first token has it."""
    before, _, after = text.partition(BLANK)
    space = before[len(before.rstrip()) :]
    return Passage(space + option, before.rstrip(), after)


def _ranks(prompted: TrainedModel, questions: Sequence[Question]) -> dict[int, int]:
    """Return the right words' ranks among all tokens by question, where they are one token.

    Only models that predict a word in its place, after or between the others, have one.
    """
    if not (prompted.continues or prompted.fills_in_place) or prompted.detects_replacements:
        return {}
    passages = {n: _passage(q.text, q.answer) for n, q in enumerate(questions)}
    if prompted.continues:
        passages = {n: Passage(p.text, p.before) for n, p in passages.items() if p.before}
    scores = score_passages(prompted, passages.values(), ranks=True)
    return {
        n: int(score.ranks[0]) + 1
        for n, score in zip(passages, scores, strict=True)
        if len(score.ranks) == 1 and not score.unknown
    }


def _frequent(prompted: TrainedModel, questions: Sequence[Question]) -> list[float]:
    """Return whether each question's most frequent option is right; nan without the text."""
    text = training_text(prompted)
    if text is None:
        return [NAN] * len(questions)
    words = [
        [tokens_of(prompted, _passage(q.text, option)) for option in q.options] for q in questions
    ]
    counts = occurrences(text, (word for options in words for word in options))
    return [best([counts[word] for word in options], right=0)[1] for options in words]
