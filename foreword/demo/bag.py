"""A bag-of-words baseline: what the same labelled examples reach without a network."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from foreword.tuning.tasks._contract import Labelled, Task

NAME = "bag of words (TF-IDF, logistic regression)"
PENALTIES = (1.0, 10.0, 100.0)
FOLDS = 3


def bag_of_words(task: Task, train: Sequence[Labelled], test: Sequence[Labelled]) -> dict[str, Any]:
    """Return the scores of the baseline as a row like those of fine-tuning.

    The penalty, and whether pairs of words are features, are chosen on the training examples alone
    by cross-validation.

    Args:
        task: the task, which computes the scores.
        train: examples to learn from.
        test: examples to score.
    """
    labels = task.labels(train)
    model = make_pipeline(TfidfVectorizer(sublinear_tf=True), LogisticRegression(max_iter=1000))
    grid = {"tfidfvectorizer__ngram_range": [(1, 1), (1, 2)], "logisticregression__C": PENALTIES}
    search = GridSearchCV(model, grid, cv=FOLDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search.fit([example.text for example in train], task.targets(train, labels))
        outputs = search.predict_proba([example.text for example in test])
    scores = task.scores(outputs, task.targets(test, labels))
    return {"start": "no network", "strategy": NAME, **scores}
