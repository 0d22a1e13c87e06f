"""The rules of C4."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foreword.cleaning.steps._contract import DocumentFilter, DocumentStep
from foreword.settings.ranges import Count, CountOrZero


@dataclass(frozen=True)
class C4(DocumentStep):
    """Remove lines of web pages that are not prose, and drop pages with little left.

    Reference: Raffel et al. 2020, Exploring the Limits of Transfer Learning with a Unified
    Text-to-Text Transformer, https://jmlr.org/papers/v21/20-074.html, section 2.2; as datatrove
    has it.

    Differs from the paper: no list of words that pages must not contain, and whole documents are
    compared for duplicates by other steps, not spans of three sentences.

    Attributes:
        ends_in_punctuation: whether to remove lines that do not end in `.`, `?`, `!` or a quote.
        min_sentences: fewest sentences of a document after lines were removed.
        min_words: fewest words of a line.
        max_word_length: longest word of a line, in characters.
        citations: whether to remove marks such as `[1]` and `[edit]`.
        javascript: whether to remove lines that mention JavaScript.
        policies: whether to remove lines about cookies, privacy and terms of use.
        lorem_ipsum: whether to drop documents with "lorem ipsum".
        braces: whether to drop documents with `{`, a sign of code.
        languages: languages of the documents that it judges; none for all.
    """

    ends_in_punctuation: bool = True
    min_sentences: CountOrZero = 5
    min_words: CountOrZero = 3
    max_word_length: Count = 1000
    citations: bool = True
    javascript: bool = True
    policies: bool = True
    lorem_ipsum: bool = True
    braces: bool = True
    languages: tuple[str, ...] = ("en",)

    def opened(self, folder: Path) -> DocumentFilter:
        from datatrove.pipeline.filters import C4QualityFilter

        from foreword.cleaning.words import WORDS

        document_filter: DocumentFilter = C4QualityFilter(
            filter_no_terminal_punct=self.ends_in_punctuation,
            min_num_sentences=self.min_sentences or -1,
            min_words_per_line=self.min_words,
            max_word_length=self.max_word_length,
            remove_citations=self.citations,
            filter_javascript=self.javascript,
            filter_policy=self.policies,
            filter_lorem_ipsum=self.lorem_ipsum,
            filter_curly_bracket=self.braces,
            language=WORDS,
        )
        return document_filter
