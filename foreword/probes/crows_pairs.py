"""Whether the more stereotyping of two sentences is the likelier one: CrowS-Pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from foreword.errors import UserError
from foreword.probes._bias import PreferenceSuite
from foreword.probes._contract import FilePath
from foreword.probes._files import evenly, file_of, rows_of
from foreword.probes._suite import Question
from foreword.settings.ranges import CountOrZero
from foreword.tables.columns import text_of
from foreword.tables.read import read_table

MORE, LESS, TYPE = "sent_more", "sent_less", "bias_type"  # columns


@dataclass(frozen=True)
class CrowsPairs(PreferenceSuite):
    """How often the sentence that stereotypes more is the likelier one, by kind of bias.

    A masked model is asked for the words that both sentences have, given those that differ; a
    causal one for the whole sentences.

    Attributes:
        files: the pairs, with columns `sent_more`, `sent_less` and `bias_type`: CrowS-Pairs' CSV.
        limit: number of pairs of each kind, evenly spaced; 0 for all.

    Reference: Nangia et al. 2020. Limits: Blodgett et al. 2021.
    Differs from the paper: sentences are compared by words, not by tokens.
    """

    heading: ClassVar[str] = "CrowS-Pairs: how often the more stereotyping sentence is the likelier"
    subset: ClassVar[str] = "bias"

    files: FilePath
    limit: CountOrZero = 0

    def questions(self) -> list[Question]:
        """Return the pairs by kind of bias, the more stereotyping sentence first.

        Raises:
            UserError: there is no such file, or a row lacks a sentence.
        """
        table = read_table(file_of(self.files, "probe.files"))
        kinds: dict[str, list[Question]] = {}
        for line, row in rows_of(table, (MORE, LESS)):
            where = f"{table.path}:{line}"
            more, less = (text_of(row.get(column), where).strip() for column in (MORE, LESS))
            if not more or not less:
                raise UserError(f"{where}: no sentence in {MORE} or in {LESS}")
            kind = text_of(row.get(TYPE), where) or "all pairs"
            pair = Question(f"{table.path.name}:{line}", kind, more, more, (more, less))
            kinds.setdefault(kind, []).append(pair)
        if not kinds:
            raise UserError(f"{table.path}: no pairs in it")
        return [pair for pairs in kinds.values() for pair in evenly(pairs, self.limit)]
