"""The scores of answers by SQuAD's official scripts, and the threshold for answering nothing."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(answer: str) -> str:
    """Return an answer in lower case without punctuation, articles and needless spaces."""
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(PUNCTUATION)).split())


def right_answers(answers: Sequence[str]) -> list[str]:
    """Return the answers that are not empty once normalised, or "" if there is none."""
    return [answer for answer in answers if normalised(answer)] or [""]


def exact_match(answer: str, right: Sequence[str]) -> float:
    """Return 1 if a normalised answer is one of the right ones, else 0."""
    return float(any(normalised(answer) == normalised(reference) for reference in right))


def f1(answer: str, right: Sequence[str]) -> float:
    """Return the F1 of an answer's words with those of the right answer that fits best."""
    return max(
        _f1(normalised(answer).split(), normalised(reference).split()) for reference in right
    )


def _f1(words: Sequence[str], right: Sequence[str]) -> float:
    if not words or not right:
        return float(words == right)
    common = (Counter(words) & Counter(right)).total()
    return 2 * common / (len(words) + len(right))


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
