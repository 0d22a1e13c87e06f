"""Measures of written answers: of questions, of summaries and of translations.

Answers to questions are scored as by SQuAD's official scripts.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, Literal

import numpy as np

from foreword.errors import UserError
from foreword.evaluation.translation import compare
from foreword.text import words

Metric = Literal["accuracy", "answer", "rouge", "bleu"]
ROUGE = ("rouge1", "rouge2", "rougeL")
SCORES: dict[str, tuple[str, ...]] = {
    "answer": ("exact_match", "answer_f1"),
    "rouge": ROUGE,
    "bleu": ("bleu", "chrf"),
}
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
RULES = (
    ("ROUGE", "rouge1", words.RULE),
    ("F1", "answer_f1", f"between spaces, normalised as SQuAD does; {words.UNSPACED_RULE}"),
    ("BLEU", "bleu", f"sacrebleu's 13a; {words.UNSPACED_RULE}"),
)


def require(metric: Metric) -> None:
    """Raise UserError unless the package for a measure is installed."""
    if metric == "rouge":
        _rouge_scorer()


def text_scores(
    metric: Metric, answers: Sequence[str], references: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Return the scores of written answers.

    Args:
        metric: `answer`, exact match and F1 of words by SQuAD's rules; `rouge`, the F-measures of
            words, pairs of words and longest common subsequences, by the best reference; or
            `bleu`, of 100, with chrF.
        references: the right answers to each, at least one.
    """
    if metric == "answer":
        pairs = [(a, right_answers(r)) for a, r in zip(answers, references, strict=True)]
        return {
            "exact_match": float(np.mean([exact_match(*pair) for pair in pairs])),
            "answer_f1": float(np.mean([f1(*pair) for pair in pairs])),
        }
    if metric == "rouge":
        scorer = _rouge_scorer()
        scored = [scorer.score_multi(r, a) for a, r in zip(answers, references, strict=True)]
        return {
            name: float(np.mean([scores[name].fmeasure for scores in scored])) for name in ROUGE
        }
    quality = compare(answers, *zip_longest(*references))
    return {"bleu": quality.bleu, "chrf": quality.chrf}


def word_rules(scores: Iterable[str]) -> list[str]:
    """Return which words scores count, by their names, a line for each rule."""
    known = set(scores)
    return [f"{names} of words: {rule}" for names, score, rule in RULES if score in known]


def share_known(references: Sequence[Sequence[str]], known: Sequence[str]) -> float:
    """Return the share of questions with a right answer among known ones, by SQuAD's rules.

    Reference: Lewis et al. 2021, "Question and Answer Test-Train Overlap", section 3.
    """
    answers = set(map(normalised, known))
    are_known = [
        any(normalised(reference) in answers for reference in group) for group in references
    ]
    return float(np.mean(are_known))


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


class _Words:
    """Words of any script; of English those of the library's tokenizer."""

    def tokenize(self, text: str) -> list[str]:
        return words.split(text)


def _rouge_scorer() -> Any:
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        raise UserError(
            "task.metric: rouge requires rouge-score: pip install 'foreword[rouge]'"
        ) from None
    return RougeScorer(list(ROUGE), tokenizer=_Words())
