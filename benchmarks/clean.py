"""How fast the filters of `foreword clean` are next to datatrove's own, and where they differ.

    python benchmarks/clean.py TEXT... [--mb 5] [--words spacy]

The four published filters judge the same documents twice: as `foreword clean` has them, with one
splitter of words, accounts and samples, and as datatrove has them, with the words of spaCy (which
must be installed) or of NLTK's Treebank tokenizer. Each document is judged by each filter by
itself, as it was read, so that one verdict does not hide another. Printed are the rates by
processor time on one core, and the share of documents on which the verdicts agree.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

from datatrove.data import Document
from datatrove.pipeline import filters
from datatrove.utils.word_tokenizers import WordTokenizer, load_word_tokenizer

from foreword.cleaning.blocks import Apply
from foreword.cleaning.languages import identify
from foreword.cleaning.steps._contract import DocumentStep
from foreword.cleaning.steps.c4 import C4
from foreword.cleaning.steps.fineweb import FineWeb
from foreword.cleaning.steps.gopher_quality import GopherQuality
from foreword.cleaning.steps.gopher_repetition import GopherRepetition
from foreword.data.read_documents import read_documents

STEPS: list[tuple[DocumentStep, Any]] = [
    (GopherRepetition(languages=()), filters.GopherRepetitionFilter),
    (GopherQuality(languages=()), filters.GopherQualityFilter),
    (C4(languages=(), ends_in_punctuation=False), filters.C4QualityFilter),
    (FineWeb(languages=()), filters.FineWebQualityFilter),
]


class Treebank(WordTokenizer):  # type: ignore[misc]
    """NLTK's words and, roughly, sentences."""

    def __init__(self) -> None:
        from nltk.tokenize import NLTKWordTokenizer

        super().__init__("english")
        self._words = NLTKWordTokenizer()

    def word_tokenize(self, text: str) -> list[str]:
        """Return the words."""
        words: list[str] = self._words.tokenize(text)
        return words

    def sent_tokenize(self, text: str) -> list[str]:
        """Return the sentences."""
        return [text[start:end] for start, end in self.span_tokenize(text)]

    def span_tokenize(self, text: str) -> list[tuple[int, int]]:
        """Return the ends of the sentences, by Foreword's patterns."""
        from foreword.cleaning.words import WORDS

        spans: list[tuple[int, int]] = WORDS.span_tokenize(text)
        return spans


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--mb", type=float, default=5, help="megabytes of text, evenly spaced")
    parser.add_argument("--every", type=int, default=1, help="take one document in so many")
    parser.add_argument("--words", choices=("spacy", "nltk"), default="spacy")
    arguments = parser.parse_args()
    documents, size = _some(arguments.texts, arguments.mb * 1e6, arguments.every)
    print(f"{len(documents):,} documents, {size / 1e6:.1f} MB")
    theirs = load_word_tokenizer("en") if arguments.words == "spacy" else Treebank()
    rate = _chain(documents, size)
    print(f"foreword clean: {rate:.2f} MB/s a core, all four with accounts and samples")
    taken = agreed = 0.0
    everywhere = [True] * len(documents)
    for step, kind in STEPS:
        settings = {"filter_no_terminal_punct": False} if isinstance(step, C4) else {}
        plain = kind(language=theirs, **settings)
        begin = time.process_time()
        wanted = [_judge(plain, text) for text in documents]
        taken += (own := time.process_time() - begin)
        judge: Any = step.opened(Path())
        same = [_judge(judge, t) == w for t, w in zip(documents, wanted, strict=True)]
        everywhere = [a and b for a, b in zip(everywhere, same, strict=True)]
        agreed = sum(same) / len(same)
        kept = sum(wanted) / len(wanted)
        name = type(step).__name__
        print(
            f"{name}: datatrove {size / 1e6 / own:.2f} MB/s, keeps {kept:.1%}; agree {agreed:.2%}"
        )
    print(f"datatrove: {size / 1e6 / taken:.2f} MB/s a core, all four, words of {arguments.words}")
    print(f"all four agree on {sum(everywhere) / len(everywhere):.2%} of the documents")


def _some(texts: list[str], most: float, every: int) -> tuple[list[str], int]:
    """Return documents of `most` bytes in all, and their bytes."""
    found, size = [], 0
    for document in islice(read_documents(texts), 0, None, every):
        found.append(document.text)
        size += len(document.text.encode())
        if size >= most:
            break
    return found, size


def _chain(texts: list[str], size: int) -> float:
    """Return the megabytes a second of all filters one after the other, as cleaning runs them."""
    documents = [Document(text, str(number)) for number, text in enumerate(texts)]
    for document in documents:
        identify(document)
    with tempfile.TemporaryDirectory() as folder:
        data: Any = iter(documents)
        for number, (step, _) in enumerate(STEPS):
            data = Apply(step, Path(folder), Path(folder) / str(number), 4).run(data)
        begin = time.process_time()
        for _ in data:
            pass
        return size / 1e6 / (time.process_time() - begin)


def _judge(made: Any, text: str) -> bool:
    """Return whether a filter keeps a text."""
    try:
        return made.filter(Document(text, "")) is True
    except ZeroDivisionError:
        return False


if __name__ == "__main__":
    main()
