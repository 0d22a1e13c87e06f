"""The rules that FineWeb added."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foreword.cleaning.steps._contract import DocumentFilter, DocumentStep
from foreword.settings.ranges import CountOrZero, NonNegative, Share


@dataclass(frozen=True)
class FineWeb(DocumentStep):
    """Drop lists and pages of short lines, by the rules that FineWeb added to Gopher's and C4's.

    Reference: Penedo et al. 2024, The FineWeb Datasets, https://arxiv.org/abs/2406.17557,
    section 3.6; as datatrove has it.

    Attributes:
        min_punctuated_lines: smallest share of lines that end in punctuation.
        max_short_lines: largest share of short lines.
        short_line: characters of a line that is short.
        max_duplicate_characters: largest share of the text in lines that occurred before.
        max_line_breaks: most line breaks per word.
        languages: languages of the documents that it judges; none for all.
    """

    min_punctuated_lines: Share = 0.12
    max_short_lines: Share = 0.67
    short_line: CountOrZero = 30
    max_duplicate_characters: Share = 0.01
    max_line_breaks: NonNegative = 0.3
    languages: tuple[str, ...] = ("en",)

    def opened(self, folder: Path) -> DocumentFilter:
        from datatrove.pipeline.filters import FineWebQualityFilter

        from foreword.cleaning.words import WORDS

        document_filter: DocumentFilter = FineWebQualityFilter(
            line_punct_thr=self.min_punctuated_lines,
            short_line_thr=self.max_short_lines,
            short_line_length=self.short_line,
            char_duplicates_ratio=self.max_duplicate_characters,
            new_line_ratio=self.max_line_breaks,
            language=WORDS,
        )
        return document_filter
