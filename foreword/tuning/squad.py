"""The scores of answers by SQuAD's official scripts, and the threshold for answering nothing."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence

from foreword.text import words

ARTICLES = re.compile(rf"\b(a|an|the)\b(?![{words.MARKS}])")
# SQuAD's, which goes; and that of other scripts, some of which stands between words. What English
# has beyond ASCII (U+2000 on) stays, as in SQuAD's script.
PUNCTUATION: dict[int, str | None] = {
    **dict.fromkeys(map(ord, string.punctuation)),
    **{
        code: " "
        for code in (*range(0x37E, 0x2000), *range(0x2E80, 0x20000))
        if unicodedata.category(chr(code))[0] == "P"
    },
}


def normalised(answer: str) -> str:
    """Return an answer in lower case without punctuation, articles and needless spaces."""
    composed = unicodedata.normalize("NFC", answer.lower())
    return " ".join(ARTICLES.sub(" ", composed.translate(PUNCTUATION)).split())


def right_answers(answers: Sequence[str]) -> list[str]:
    """Return the answers that are not empty once normalised, or "" if there is none."""
    return [answer for answer in answers if normalised(answer)] or [""]


def exact_match(answer: str, right: Sequence[str]) -> float:
    """Return 1 if a normalised answer is one of the right ones, else 0."""
    return float(any(normalised(answer) == normalised(reference) for reference in right))


def f1(answer: str, right: Sequence[str]) -> float:
    """Return the F1 of an answer's words with those of the right answer that fits best."""
    return max(_f1(_words(answer), _words(reference)) for reference in right)


def _words(answer: str) -> list[str]:
    return words.spaced(normalised(answer)).split()


def _f1(given: Sequence[str], right: Sequence[str]) -> float:
    if not given or not right:
        return float(given == right)
    common = (Counter(given) & Counter(right)).total()
    return 2 * common / (len(given) + len(right))


def best_threshold(
    scores: Sequence[float], margins: Sequence[float], are_answerable: Sequence[bool]
) -> float:
    """Return the margin above which nothing is answered, so that the scores are the highest.

    Args:
        scores: the score of the best answer to each question, if it is given.
        margins: by how much the score of no answer exceeds that of the best answer.
        are_answerable: whether there is an answer; if not, answering nothing scores 1.
    """
    order = sorted(range(len(margins)), key=lambda n: margins[n])
    total = best = float(sum(not answerable for answerable in are_answerable))
    threshold = margins[order[0]] - 1.0 if order else 0.0
    for place, n in enumerate(order):
        total += scores[n] if are_answerable[n] else -1.0
        follows = margins[order[place + 1]] if place + 1 < len(order) else margins[n] + 2.0
        if total > best and follows > margins[n]:
            best, threshold = total, (margins[n] + follows) / 2
    return threshold
