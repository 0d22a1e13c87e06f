"""The arguments of a verb that looks for personal strings in text, and how it shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foreword.display.results import Part, ResultTable
from foreword.errors import UserError
from foreword.formatting import rounded

if TYPE_CHECKING:
    from foreword.cleaning.personal import PersonalCounts
    from foreword.data.text_files import ReadSettings
    from foreword.runs.stages import Stage

PHONE = "telephone number"  # of the kinds of `foreword.cleaning.personal`


@dataclass(frozen=True, kw_only=True)
class LooksForPersonal:
    """Whether to look for personal strings.

    Attributes:
        privacy: also count strings that look personal: e-mail addresses, telephone numbers with a
            country code, cards, accounts, IP addresses, keys of known services.
        country: with --privacy: also telephone numbers of this country without its code: US.
    """

    privacy: bool = False
    country: str | None = None

    def require_possible(self, texts: Sequence[str]) -> None:
        """Check before the work that the text can be looked through.

        Raises:
            UserError: a package is missing, there is no such country, or the text is tokens.
        """
        from foreword.cleaning.personal import finder
        from foreword.runs.corpus import is_prepared

        if not self.privacy:
            if self.country is not None:
                raise UserError("--country: requires --privacy")
            return
        if is_prepared(texts):
            raise UserError(f"--privacy: {texts[0]} holds tokens; name the text they were made of")
        finder(self.country)

    def personal_strings(
        self, texts: Sequence[str], read: ReadSettings, stage: Stage
    ) -> PersonalCounts:
        """Count the personal strings at the beginning of a text."""
        from foreword.cleaning.personal import count_personal
        from foreword.data.read_documents import read_documents
        from foreword.planning.check import SAMPLE_BYTES

        advance = stage("looking for personal strings")
        return count_personal(
            read_documents(texts, read),
            self.country,
            SAMPLE_BYTES,
            lambda size: advance(min(size, SAMPLE_BYTES), SAMPLE_BYTES),
        )

    def shown(self, personal: PersonalCounts) -> list[Part]:
        """Return the counts as a table, and what they are worth."""
        codes, phones = "+...", "a country code"
        if self.country is not None:
            codes, phones = f"{codes}, {self.country}", f"{phones}, or of {self.country}"
        rows = [
            {
                "kind": f"{PHONE} ({codes})" if count.kind == PHONE else count.kind,
                "found": f"{count.found:,}",
                "documents": f"{count.documents:,}",
                "such as": count.example,
                "first in": count.first.rpartition("/")[2],
            }
            for count in personal.counts
        ]
        return [
            ResultTable(rows, "Strings that look personal"),
            f"in {personal.documents:,} documents, {rounded(personal.bytes / 1e6)} MB; a count of "
            "forms, so some are none and others are missed. Known forms: telephone numbers with "
            f"{phones}; cards and bank accounts with valid check digits; keys of known services, "
            "private keys, passwords in URLs. Other secrets are not seen, such as a password in a "
            "sentence or a key of another service; names and postal addresses are not looked for",
        ]
