"""HTML in texts that should have none."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foreword.cleaning.signs import TAG, has_markup
from foreword.cleaning.steps._contract import DocumentFilter, DocumentStep, Verdict
from foreword.data.web_page import UnreadablePageError, extract
from foreword.process.extras import require_packages

BLOCK = re.compile(r"<(?:html|head|title|body|p|div|td|li)[\s>]", re.I)
STRAY = re.compile(rf"<(?!{TAG}|!--|!doctype\b)", re.I)  # less than, or a name of another language
BLANK = re.compile(r"\n[ \t\xa0]*(?:\n[ \t\xa0]*)+")


@dataclass(frozen=True)
class HTML(DocumentStep):
    """Strip the tags, scripts, styles, comments and entities of HTML, by resiliparse.

    Texts without any are not changed, and no text is dropped unless nothing is left of it. In a
    page with paragraphs line ends are spaces; in other texts they stay. Navigation stays too: web
    archives are read without it.
    """

    def prepare(self, folder: Path) -> None:
        require_packages(("resiliparse",), "the step html requires", "data")

    def opened(self, folder: Path) -> DocumentFilter:
        return _Strip()


@dataclass
class _Strip:
    """A filter that keeps every document and changes its text.

    Attributes:
        details: number of texts that are nested too deeply, which stay as they were.
    """

    details: Counter[str] = field(default_factory=Counter)

    def filter(self, document: Any) -> Verdict:
        """Strip the text; return True."""
        text = document.text
        if not has_markup(text):
            return True
        marked = STRAY.sub("&lt;", text)
        if not BLOCK.search(text):
            marked = f"<pre>{marked}</pre>"
        try:
            document.text = BLANK.sub("\n\n", extract(marked, main_content=False)).strip()
        except UnreadablePageError as error:
            self.details[f"not changed: {error}"] += 1
        return True
