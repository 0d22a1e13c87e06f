"""Strings that look personal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from foreword.cleaning.personal import KINDS, scrubber
from foreword.cleaning.steps._contract import DocumentFilter, DocumentStep, Verdict
from foreword.errors import UserError, nearest


@dataclass(frozen=True)
class Personal(DocumentStep):
    """Replace strings that look personal or secret by the name of their kind, `[e-mail address]`.

    They are found as `foreword check --privacy` finds them; it requires the extra `privacy`. No
    document is dropped.

    Attributes:
        kinds: what to replace; none for all: e-mail address, payment card, bank account, telephone
            number, IP address, key or password.
        country: two letters (`US`) of a country whose telephone numbers are also found without
            their country code; "" for none.
    """

    shows_before: ClassVar[bool] = False

    kinds: tuple[str, ...] = ()
    country: str = ""

    def prepare(self, folder: Path) -> None:
        for kind in self.kinds:
            if kind not in KINDS:
                raise UserError(f"kinds: no kind '{kind}'{nearest(kind, KINDS)}")
        scrubber(self.country or None, self.kinds or KINDS)

    def opened(self, folder: Path) -> DocumentFilter:
        return _Scrub(scrubber(self.country or None, self.kinds or KINDS))


@dataclass
class _Scrub:
    """A filter that keeps every document and changes its text.

    Attributes:
        scrub: returns a text without such strings, and the kinds of those replaced.
        details: number of strings replaced, by kind.
    """

    scrub: Callable[[str], tuple[str, list[str]]]
    details: Counter[str] = field(default_factory=Counter)

    def filter(self, document: Any) -> Verdict:
        """Replace the strings; return True."""
        document.text, replaced = self.scrub(document.text)
        self.details.update(f"{kind} replaced" for kind in replaced)
        return True
