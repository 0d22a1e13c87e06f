"""The language of documents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreword.cleaning.steps._contract import DocumentFilter, DocumentStep, Verdict
from foreword.errors import UserError, nearest
from foreword.settings.ranges import Share


@dataclass(frozen=True)
class Language(DocumentStep):
    """Identify the language of each document, and keep some languages or all.

    The language of each document is written beside its text, and counted.

    Reference: Lui and Baldwin 2012, langid.py: An Off-the-shelf Language Identification Tool,
    https://aclanthology.org/P12-3005; by the package py3langid, whose model ships with it.

    Attributes:
        keep: ISO 639-1 codes of the languages to keep (`en`); none for all.
        min_probability: smallest probability of the language.
    """

    keep: tuple[str, ...] = ()
    min_probability: Share = 0.0

    def prepare(self, folder: Path) -> None:
        from foreword.cleaning.languages import codes

        for code in self.keep:
            if code not in (supported := codes()):
                raise UserError(f"keep: no language '{code}'{nearest(code, supported)}")

    def opened(self, folder: Path) -> DocumentFilter:
        return _ByLanguage(self)


@dataclass(frozen=True)
class _ByLanguage:
    """A filter by language."""

    settings: Language

    def filter(self, document: Any) -> Verdict:
        """Return whether the language is one to keep, and certain enough."""
        from foreword.cleaning.languages import PROBABILITY, identify

        language = identify(document)
        if self.settings.keep and language not in self.settings.keep:
            return False, f"language {language}"
        if document.metadata[PROBABILITY] < self.settings.min_probability:
            return False, "language uncertain"
        return True
