"""Passages whose package is to be told, to learn from and to be tested on."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from foreword.demo import installed
from foreword.demo.installed import text_hash
from foreword.demo.reading import Docstring
from foreword.errors import UserError

SHARED_WORDS = 8  # words in a row that no test passage shares with a text that is trained on
PASSAGE = (20, 60)  # words
# What else packages are called, in text or in code.
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
    """What is learned from, and what is tested.

    Attributes:
        labels: the packages.
        train: passages of texts that are read in pretraining too, without their labels.
        test: passages of texts that are not.
        shared: how many were left out of the test for words in common with texts that are read.
    """

    labels: list[str]
    train: list[Passage]
    test: list[Passage]
    shared: int


def choose_passages(texts: Sequence[Docstring], packages: int, train: int, test: int) -> Passages:
    """The packages with most text, and passages of each to train and to test on.

    A test passage comes from a source file of which nothing is trained on, and shares no eight
    words in a row with any text that is.

    Args:
        texts: all there are.
        packages: the most to be told apart.
        train: passages of each to learn from.
        test: passages of each to score, as far as there are so many.

    Raises:
        UserError: fewer than two packages have enough passages.
    """
    labels = _largest(texts, train, test)[:packages]
    names = names_pattern(labels)
    pools: dict[tuple[str, bool], dict[str, Docstring]] = defaultdict(dict)
    for text in texts:
        if text.package in labels and (passage := passage_of(text, names)):
            pools[text.package, text.is_test].setdefault(passage, text)
    asked = [text for name in labels for text in pools[name, True].values()]
    shared = sharing_words((text for text in texts if is_for_pretraining(text, labels)), asked)
    learned, tested = [], []
    for name in labels:
        free = [passage for passage, text in pools[name, True].items() if text not in shared]
        learned += [
            (passage, name) for passage in sorted(pools[name, False], key=text_hash)[:train]
        ]
        tested += [(passage, name) for passage in sorted(free, key=text_hash)[:test]]
    if len(labels) < 2 or {label for _, label in tested} != set(labels):
        raise UserError(
            "too few of the installed packages are documented well enough for the demo; it wants "
            "at least two such as numpy, scipy, scikit-learn, networkx"
        )
    return Passages(labels, learned, tested, len(shared))


def is_for_pretraining(text: Docstring, labels: Sequence[str]) -> bool:
    """Whether pretraining reads a text: all but what the test may be made of."""
    return not (text.is_test and text.package in labels)


def _largest(texts: Sequence[Docstring], train: int, test: int) -> list[str]:
    """The packages that have enough passages, the one with most text first."""
    size: Counter[str] = Counter()
    passages: Counter[tuple[str, bool]] = Counter()
    for text in texts:
        size[text.package] += len(text.whole)
        passages[text.package, text.is_test] += len(text.whole.split()) >= PASSAGE[0]
    size.pop(installed.LIBRARY, None)  # all packages talk of Python
    # Half as many again: some lose words by their names, or share words with training text.
    return [
        name
        for name, _ in size.most_common()
        if passages[name, False] >= 1.5 * train and passages[name, True] >= 1.5 * test
    ]


def passage_of(text: Docstring, names: re.Pattern[str]) -> str | None:
    """The first words of a text without names of packages, or None where they are too few."""
    least, most = PASSAGE
    words = names.sub("", " ".join(text.paragraphs)).split()
    return " ".join(words[:most]) if len(words) >= least else None


def names_pattern(packages: Iterable[str]) -> re.Pattern[str]:
    """What matches a word that names one of the packages: `numpy.ndarray`, `np`, `scikit-learn`."""
    whole = sorted({word for name in packages for word in (name, *ALIASES.get(name, "").split())})
    inside = [re.escape(word) for word in whole if len(word) >= 5]
    short = [re.escape(word) for word in whole if len(word) < 5]
    parts = [rf"[\w.-]*(?:{'|'.join(inside)})[\w.-]*"] if inside else []
    parts += [rf"(?<![\w.])(?:{'|'.join(short)})(?!\w)(?:\.[\w.]*)?"] if short else []
    return re.compile("|".join(parts), re.IGNORECASE)


def sharing_words(known: Iterable[Docstring], candidates: Iterable[Docstring]) -> set[Docstring]:
    """Those of the texts `candidates` that have eight words in a row in common with a known one."""
    where: dict[tuple[str, ...], list[Docstring]] = defaultdict(list)
    for text in candidates:
        for run in _word_runs(text):
            where[run].append(text)
    found: set[Docstring] = set()
    for text in known:
        for run in _word_runs(text):
            if run in where:
                found.update(where[run])
    return found


def _word_runs(text: Docstring) -> Iterable[tuple[str, ...]]:
    words = re.findall(r"\w+", text.whole.lower())
    return zip(*(words[n:] for n in range(SHARED_WORDS)), strict=False)
