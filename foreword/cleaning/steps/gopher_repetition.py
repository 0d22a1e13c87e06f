"""The repetition rules of Gopher."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foreword.cleaning.steps._contract import DocumentFilter, DocumentStep
from foreword.settings.ranges import Share


@dataclass(frozen=True)
class GopherRepetition(DocumentStep):
    """Drop what repeats itself: lines, paragraphs and sequences of words.

    It judges every language by default: nothing in it is English. A threshold of 0 for lines and
    paragraphs is not applied.

    Reference: Rae et al. 2021, Scaling Language Models: Methods, Analysis & Insights from Training
    Gopher, https://arxiv.org/abs/2112.11446, table A1; as datatrove has it.

    Attributes:
        max_duplicate_lines: largest share of lines that occurred before.
        max_duplicate_paragraphs: largest share of paragraphs that occurred before.
        max_duplicate_line_characters: their largest share of the text.
        max_duplicate_paragraph_characters: their largest share of the text.
        max_top_ngrams: largest share of the text in the most frequent 2-gram, 3-gram, 4-gram.
        max_repeated_ngrams: largest share of the text in repeated 5-grams, 6-grams, ... 10-grams.
        languages: languages of the documents that it judges; none for all.
    """

    max_duplicate_lines: Share = 0.3
    max_duplicate_paragraphs: Share = 0.3
    max_duplicate_line_characters: Share = 0.2
    max_duplicate_paragraph_characters: Share = 0.2
    max_top_ngrams: tuple[Share, ...] = (0.2, 0.18, 0.16)
    max_repeated_ngrams: tuple[Share, ...] = (0.15, 0.14, 0.13, 0.12, 0.11, 0.1)
    languages: tuple[str, ...] = ()

    def opened(self, folder: Path) -> DocumentFilter:
        from foreword.cleaning.repetition import Repetition

        return Repetition(
            dup_line_frac=self.max_duplicate_lines,
            dup_para_frac=self.max_duplicate_paragraphs,
            dup_line_char_frac=self.max_duplicate_line_characters,
            dup_para_char_frac=self.max_duplicate_paragraph_characters,
            top_n_grams=tuple(enumerate(self.max_top_ngrams, 2)),
            dup_n_grams=tuple(enumerate(self.max_repeated_ngrams, 5)),
        )
