"""Passages labelled by their package, for training and test."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from foreword.demonstration import installed
from foreword.demonstration.installed import text_hash
from foreword.demonstration.reading import Docstring
from foreword.errors import UserError

SHARED_WORDS = 8  # words in a row; no test passage shares as many with a training text
PASSAGE = (20, 60)  # words
ENOUGH = 60  # test passages, for a package to be among those chosen
# Other names of packages, in text or in code.
ALIASES = {
    "PIL": "pillow",
    "accelerate": "accelerator",
    "fontTools": "fonttool ttlib",
    "huggingface_hub": "huggingface hugging hf hub",
    "matplotlib": "mpl plt pyplot pylab mpl_toolkits",
    "networkx": "nx",
    "numpy": "np",
    "pandas": "pd",
    "pyarrow": "arrow pa",
    "scipy": "sp",
    "sklearn": "scikit scikits skl",
    "sympy": "",
    "torch": "pytorch caffe2 aten",
    "transformers": "transformer huggingface hugging hf",
}

Passage = tuple[str, str]  # text, package


@dataclass(frozen=True)
class Passages:
    """The labelled passages.

    Attributes:
        labels: the packages.
        train: passages of texts that pretraining also reads, without labels.
        test: passages of texts that pretraining does not read.
        shared: number of test texts left out because they share words with pretraining's.
    """

    labels: list[str]
    train: list[Passage]
    test: list[Passage]
    shared: int


def choose_passages(texts: Sequence[Docstring], packages: int, train: int, test: int) -> Passages:
    """Choose the packages with most text, and training and test passages of each.

    A test passage comes from a source file that training does not read, and shares no eight words
    in a row with any text that it reads.

    Args:
        texts: all texts.
        packages: maximum number of packages.
        train: training passages per package.
        test: maximum number of test passages per package.

    Raises:
        UserError: fewer than two packages have enough passages.
    """
    # Pool the passages of the largest packages by package and by split, without duplicates.
    labels = _largest(texts, train, test)[:packages]
    names = names_pattern(labels)
    pools: dict[tuple[str, bool], dict[str, Docstring]] = defaultdict(dict)
    for text in texts:
        if text.package in labels and (passage := passage_of(text, names)):
            pools[text.package, text.is_test].setdefault(passage, text)
    # Leave out test texts that share words with training, and draw from the rest.
    candidates = [text for name in labels for text in pools[name, True].values()]
    training = (text for text in texts if is_for_pretraining(text, labels))
    shared = sharing_words(training, candidates)
    for_train, for_test = [], []
    for name in labels:
        unshared = [passage for passage, text in pools[name, True].items() if text not in shared]
        drawn = sorted(pools[name, False], key=text_hash)[:train]
        for_train += [(passage, name) for passage in drawn]
        for_test += [(passage, name) for passage in sorted(unshared, key=text_hash)[:test]]
    if len(labels) < 2 or {label for _, label in for_test} != set(labels):
        raise UserError(
            "too few of the installed packages have enough documentation for the demo; it requires "
            "at least two such as numpy, scipy, scikit-learn, networkx"
        )
    return Passages(labels, for_train, for_test, len(shared))


def is_for_pretraining(text: Docstring, labels: Sequence[str]) -> bool:
    """Return whether pretraining reads a text: all but those that the test may use."""
    return not (text.is_test and text.package in labels)


def _largest(texts: Sequence[Docstring], train: int, test: int) -> list[str]:
    """Return the packages with enough passages, the one with most text first."""
    size: Counter[str] = Counter()
    passages: Counter[tuple[str, bool]] = Counter()
    for text in texts:
        size[text.package] += len(text.whole)
        passages[text.package, text.is_test] += len(text.whole.split()) >= PASSAGE[0]
    size.pop(installed.LIBRARY, None)  # every package is about Python
    # A margin of one half: some passages become too short without names, or share words.
    return [
        name
        for name, _ in size.most_common()
        if passages[name, False] >= 1.5 * train and passages[name, True] >= 1.5 * min(test, ENOUGH)
    ]


def passage_of(text: Docstring, names: re.Pattern[str]) -> str | None:
    """Return the first words of a text without names of packages; None if too few are left."""
    least, most = PASSAGE
    words = names.sub("", " ".join(text.paragraphs)).split()
    return " ".join(words[:most]) if len(words) >= least else None


def names_pattern(packages: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern of words that name a package: `numpy.ndarray`, `np`, `scikit-learn`."""
    names = sorted({word for name in packages for word in (name, *ALIASES.get(name, "").split())})
    # Long names match inside words, short ones only as whole words.
    long = [re.escape(name) for name in names if len(name) >= 5]
    short = [re.escape(name) for name in names if len(name) < 5]
    parts = [rf"[\w.-]*(?:{'|'.join(long)})[\w.-]*"] if long else []
    parts += [rf"(?<![\w.])(?:{'|'.join(short)})(?!\w)(?:\.[\w.]*)?"] if short else []
    return re.compile("|".join(parts), re.IGNORECASE)


def sharing_words(known: Iterable[Docstring], candidates: Iterable[Docstring]) -> set[Docstring]:
    """Return the candidates that share eight words in a row with a known text."""
    by_run: dict[tuple[str, ...], list[Docstring]] = defaultdict(list)
    for text in candidates:
        for run in _word_runs(text):
            by_run[run].append(text)
    shared: set[Docstring] = set()
    for text in known:
        for run in _word_runs(text):
            if run in by_run:
                shared.update(by_run[run])
    return shared


def _word_runs(text: Docstring) -> Iterable[tuple[str, ...]]:
    words = re.findall(r"\w+", text.whole.lower())
    return zip(*(words[n:] for n in range(SHARED_WORDS)), strict=False)
