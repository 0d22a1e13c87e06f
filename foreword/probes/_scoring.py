"""The options of questions, scored by a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from foreword.evaluation.passages import Passage, PassageScore, score_passages
from foreword.evaluation.prompting import PromptedModel


def score_groups(
    prompted: PromptedModel, groups: Sequence[Sequence[Passage]]
) -> Iterator[list[PassageScore]]:
    """Yield the scores of each group of passages, computed for many groups at once.

    Raises:
        UserError: the model cannot score a passage.
    """
    scores = score_passages(prompted, (passage for group in groups for passage in group))
    for group in groups:
        yield list(islice(scores, len(group)))
