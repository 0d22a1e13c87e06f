"""What a linear classifier is taught to read from the vectors of words, and its control task."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from foreword.tables.conllu import TaggedSentence, WordProperty
from foreword.types import Array

MOST: Mapping[WordProperty, int] = {"word": 50, "position": 20, "depth": 8}
NAMES: Mapping[WordProperty, str] = {
    "upos": "part of speech",
    "xpos": "part of speech (xpos)",
    "word": f"which of the {MOST['word']} most frequent words",
    "position": f"position in the sentence, up to {MOST['position']}",
    "depth": "depth in the syntax tree",
}


class ParsedSentences(NamedTuple):
    """The sentences of a probe: to fit the classifier, to choose the layer, and to score."""

    fit: Sequence[TaggedSentence]
    choose: Sequence[TaggedSentence]
    dev: Sequence[TaggedSentence]


@dataclass(frozen=True)
class Tags:
    """The tags of the words of some sentences; other words are left out.

    Attributes:
        of_words: the tags of all sentences, one after the other, (tagged,) str.
        counts: number of tagged words of each sentence, (sentences,) int64.
        is_tagged: for each word of the sentences, whether it has a tag, (words,) bool.
    """

    of_words: Array
    counts: Array
    is_tagged: Array

    @classmethod
    def of(cls, tags: Sequence[Sequence[str | None]]) -> Tags:
        """Return the tags of each sentence, None for a word without a tag."""
        words = [tag for sentence in tags for tag in sentence]
        return cls(
            np.array([tag for tag in words if tag is not None], dtype=str),
            np.array(
                [sum(tag is not None for tag in sentence) for sentence in tags], dtype=np.int64
            ),
            np.array([tag is not None for tag in words], dtype=bool),
        )


@dataclass(frozen=True)
class WordTask:
    """One property of words to read, with the tags of all sentences.

    Attributes:
        reads: the property.
        fit: tags that a classifier is fitted to.
        choose: tags that the layer is chosen on.
        dev: tags that are scored.
        most_frequent: the baseline's tag for each tagged word of `dev`: the most frequent one of
            the word, or of all words for one not seen.
    """

    reads: WordProperty
    fit: Tags
    choose: Tags
    dev: Tags
    most_frequent: Array

    @property
    def is_enough(self) -> bool:
        """Whether there are two tags to tell apart, and words to score."""
        sizes = [len(part.of_words) for part in (self.choose, self.dev)]
        return len(set(self.fit.of_words.tolist())) > 1 and all(sizes)


def word_task(sentences: ParsedSentences, reads: WordProperty) -> WordTask:
    """Return the task of reading a property: of words, positions and depths the frequent ones."""
    in_fit = [tag for sentence in sentences.fit for tag in sentence.tags[reads] if tag is not None]
    frequent = {tag for tag, _ in Counter(in_fit).most_common(MOST.get(reads))}

    def tags(part: Sequence[TaggedSentence]) -> list[list[str | None]]:
        return [
            [t if t in frequent or reads not in MOST else None for t in s.tags[reads]] for s in part
        ]

    parts = [tags(part) for part in sentences]
    baseline = _most_frequent(sentences, parts[0], parts[2])
    fit, choose, dev = map(Tags.of, parts)
    return WordTask(reads, fit, choose, dev, np.array(baseline, dtype=str))


def control_task(sentences: ParsedSentences, task: WordTask) -> WordTask:
    """Return the control task: each word has one random tag, whatever its sentence.

    Tags are drawn in the proportions of the task's and depend on the word alone, so a classifier
    can only memorise them.

    Reference: Hewitt & Liang 2019, section 2.
    """
    tags, counts = np.unique(task.fit.of_words, return_counts=True)
    ends = np.cumsum(counts) / counts.sum()

    def random_tags(part: Sequence[TaggedSentence], real: Tags) -> Tags:
        words = np.array([word for sentence in part for word in sentence.words], dtype=str)
        draws = [_uniform(word) for word in words[real.is_tagged]]
        indices = np.minimum(np.searchsorted(ends, draws, side="right"), len(tags) - 1)
        return Tags(tags[indices], real.counts, real.is_tagged)

    fit, choose, dev = (
        random_tags(part, real)
        for part, real in zip(sentences, (task.fit, task.choose, task.dev), strict=True)
    )
    return replace(task, fit=fit, choose=choose, dev=dev)


def _uniform(word: str) -> float:
    """Return a number from [0, 1) that is a function of the word."""
    digest = hashlib.sha256(word.encode("utf-8")).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def _most_frequent(
    sentences: ParsedSentences,
    fit: Iterable[Sequence[str | None]],
    dev: Iterable[Sequence[str | None]],
) -> list[str]:
    by_word: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence, tags in zip(sentences.fit, fit, strict=True):
        for word, tag in zip(sentence.words, tags, strict=True):
            if tag is not None:
                by_word[word][tag] += 1
    overall = sum(by_word.values(), Counter[str]())
    return [
        by_word.get(word, overall).most_common(1)[0][0] if overall else ""
        for sentence, tags in zip(sentences.dev, dev, strict=True)
        for word, tag in zip(sentence.words, tags, strict=True)
        if tag is not None
    ]
