"""The quality rules of Gopher."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foreword.cleaning.steps._contract import DocumentFilter, DocumentStep
from foreword.settings.ranges import Count, CountOrZero, NonNegative, Share


@dataclass(frozen=True)
class GopherQuality(DocumentStep):
    """Drop what does not read like prose, by counts of words, symbols and lines.

    A threshold of 0 is not applied. Judges English by default: its stop words are English.

    Reference: Rae et al. 2021, Scaling Language Models: Methods, Analysis & Insights from Training
    Gopher, https://arxiv.org/abs/2112.11446, appendix A.1.1; as datatrove has it.

    Differs from the paper: punctuation marks are words of their own, as in datatrove, so
    `min_alphabetic_words` of 0.8 drops prose with many commas; the recipe `gopher` has 0.65.

    Attributes:
        min_words: fewest words that are not punctuation.
        max_words: most words that are not punctuation.
        min_mean_word_length: shortest mean word, in characters.
        max_mean_word_length: longest mean word, in characters.
        max_symbols: most hash signs, and most ellipses, per word.
        max_bullet_lines: largest share of lines that begin with a bullet.
        max_ellipsis_lines: largest share of lines that end in an ellipsis.
        min_alphabetic_words: smallest share of words with a letter.
        min_stop_words: fewest different stop words.
        stop_words: the stop words.
        languages: languages of the documents that it judges; none for all.
    """

    min_words: Count = 50
    max_words: CountOrZero = 100_000
    min_mean_word_length: NonNegative = 3.0
    max_mean_word_length: NonNegative = 10.0
    max_symbols: NonNegative = 0.1
    max_bullet_lines: Share = 0.9
    max_ellipsis_lines: Share = 0.3
    min_alphabetic_words: Share = 0.8
    min_stop_words: CountOrZero = 2
    stop_words: tuple[str, ...] = ("the", "be", "to", "of", "and", "that", "have", "with")
    languages: tuple[str, ...] = ("en",)

    def opened(self, folder: Path) -> DocumentFilter:
        from datatrove.pipeline.filters import GopherQualityFilter

        from foreword.cleaning.words import WORDS

        document_filter: DocumentFilter = GopherQualityFilter(
            min_doc_words=self.min_words,
            max_doc_words=self.max_words,
            min_avg_word_length=self.min_mean_word_length,
            max_avg_word_length=self.max_mean_word_length,
            max_symbol_word_ratio=self.max_symbols,
            max_bullet_lines_ratio=self.max_bullet_lines,
            max_ellipsis_lines_ratio=self.max_ellipsis_lines,
            max_non_alpha_words_ratio=self.min_alphabetic_words,
            min_stop_words=self.min_stop_words,
            stop_words=list(self.stop_words),
            language=WORDS,
        )
        return document_filter
