"""Measures of written answers: of questions, of summaries and of translations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, Literal

import numpy as np

from foreword.errors import UserError
from foreword.evaluation.translation import compare
from foreword.text import words
from foreword.tuning import squad

Metric = Literal["accuracy", "answer", "rouge", "bleu"]
ROUGE = ("rouge1", "rouge2", "rougeL")
SCORES: dict[str, tuple[str, ...]] = {
    "answer": ("exact_match", "answer_f1"),
    "rouge": ROUGE,
    "bleu": ("bleu", "chrf"),
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
        pairs = [(a, squad.right_answers(r)) for a, r in zip(answers, references, strict=True)]
        return {
            "exact_match": float(np.mean([squad.exact_match(*pair) for pair in pairs])),
            "answer_f1": float(np.mean([squad.f1(*pair) for pair in pairs])),
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
    answers = set(map(squad.normalised, known))
    are_known = [
        any(squad.normalised(reference) in answers for reference in group) for group in references
    ]
    return float(np.mean(are_known))


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
