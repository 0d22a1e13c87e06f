"""What `check --privacy` shows: how many strings of a text look personal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli import console
from foreword.cli._options import Options

PHONE = "telephone number"  # of the kinds of `foreword.data.personal`

if TYPE_CHECKING:
    from foreword.data.personal import PersonalCounts
    from foreword.data.text_files import ReadSettings
    from foreword.runs.stages import Stage


@dataclass(frozen=True)
class PrivacyOptions(Options):
    """Whether to look for personal strings."""

    privacy: Annotated[
        bool,
        typer.Option(
            "--privacy",
            help="Also count strings that look personal: e-mail addresses, telephone numbers with "
            "a country code, cards, accounts, IP addresses, keys of known services.",
        ),
    ] = False
    country: Annotated[
        str | None,
        typer.Option(
            help="With --privacy: also telephone numbers of this country without its code: US."
        ),
    ] = None

    def require_possible(self, texts: Sequence[str]) -> None:
        """Check before the work that the text can be looked through.

        Raises:
            UserError: a package is missing, there is no such country, or the text is tokens.
        """
        from foreword.data.personal import finder
        from foreword.errors import UserError
        from foreword.runs.corpus import is_prepared

        if not self.privacy:
            if self.country is not None:
                raise UserError("--country: requires --privacy")
            return
        if is_prepared(texts):
            raise UserError(f"--privacy: {texts[0]} holds tokens; name the text they were made of")
        finder(self.country)

    def counts(
        self, texts: Sequence[str], read: ReadSettings, most_bytes: int, stage: Stage
    ) -> PersonalCounts:
        """Count the personal strings at the beginning of a text."""
        from foreword.data.personal import count_personal
        from foreword.data.read_documents import read_documents

        advance = stage("looking for personal strings")
        return count_personal(
            read_documents(texts, read),
            self.country,
            most_bytes,
            lambda size: advance(min(size, most_bytes), most_bytes),
        )


def as_json(personal: PersonalCounts) -> dict[str, Any]:
    """Return the counts as a part of a JSON document."""
    return asdict(personal)


def show(personal: PersonalCounts, country: str | None = None) -> None:
    """Print the counts as a table.

    Args:
        personal: the counts.
        country: whose telephone numbers were also found without a country code.
    """
    codes, phones = "+...", "a country code"
    if country is not None:
        codes, phones = f"{codes}, {country}", f"{phones}, or of {country}"
    rows = []
    for count in personal.counts:
        first = count.first.rpartition("/")[2]
        numbers = (f"{count.found:,}", f"{count.documents:,}")
        kind = f"{PHONE} ({codes})" if count.kind == PHONE else count.kind
        rows.append([kind, *numbers, count.example, first])
    console.table(
        "Strings that look personal", ["kind", "found", "documents", "such as", "first in"], rows
    )
    console.say(
        f"in {personal.documents:,} documents, {personal.bytes / 1e6:.3g} MB; a count of forms, so "
        f"some are none and others are missed. Known forms: telephone numbers with {phones}; cards "
        "and bank accounts with valid check digits; keys of known services, private keys, "
        "passwords in URLs. Other secrets are not seen, such as a password in a sentence or a key "
        "of another service; names and postal addresses are not looked for"
    )
