"""Whether the pronoun that fits an occupation's stereotype is the likelier one: WinoBias."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from foreword.errors import UserError
from foreword.probes._bias import PreferenceSuite
from foreword.probes._contract import FilePath
from foreword.probes._files import evenly
from foreword.probes._suite import Question
from foreword.settings.ranges import CountOrZero
from foreword.tables.files import text_lines

PRO, ANTI = "pro_stereotyped", "anti_stereotyped"


@dataclass(frozen=True)
class Winobias(PreferenceSuite):
    """How often a sentence is likelier with the pronoun of the stereotype than with the other one.

    The two sentences of a pair differ in the pronoun alone: "The developer argued with the
    designer because he (she) did not like the design."

    Attributes:
        files: the folder of WinoBias, with files `pro_stereotyped_...` and `anti_stereotyped_...`
            of the same lines.
        limit: number of pairs of each file, evenly spaced; 0 for all.

    Reference: Zhao et al. 2018. Limits: Blodgett et al. 2021.
    Differs from the paper: nothing is said of which person the pronoun is; it is scored in place.
    """

    heading: ClassVar[str] = "WinoBias: how often the stereotype's pronoun is the likelier"
    subset: ClassVar[str] = "file"

    files: FilePath
    limit: CountOrZero = 0

    def questions(self) -> list[Question]:
        """Return the pairs by file, the stereotype's sentence first.

        Raises:
            UserError: there is no such folder, a file has no counterpart, or lines differ.
        """
        folder = Path(self.files).expanduser()
        if not folder.is_dir():
            raise UserError(f"probe.files: {folder}: no such folder")
        questions: list[Question] = []
        for file in sorted(folder.glob(f"{PRO}*")):
            other = folder / f"{ANTI}{file.name.removeprefix(PRO)}"
            if not other.is_file():
                raise UserError(f"probe.files: {file} has no counterpart {other.name}")
            pro, anti = _sentences(file), _sentences(other)
            if len(pro) != len(anti):
                raise UserError(
                    f"{other}: {len(anti):,} sentences, but {file.name} has {len(pro):,}"
                )
            name = file.name.removeprefix(f"{PRO}_")
            pairs = [
                Question(f"{file.name}:{n}", name, pro_text, pro_text, (pro_text, anti_text))
                for n, (pro_text, anti_text) in enumerate(zip(pro, anti, strict=True), 1)
            ]
            questions += evenly(pairs, self.limit)
        if not questions:
            raise UserError(f"probe.files: {folder}: no files {PRO}... in it")
        return questions


def _sentences(file: Path) -> Sequence[str]:
    """Return the sentences without numbers and without the brackets of people and pronouns."""
    lines = (re.sub(r"^\s*\d+\s+", "", line.strip()) for line in text_lines(file))
    return [re.sub(r"[\[\]]", "", line) for line in lines if line]
