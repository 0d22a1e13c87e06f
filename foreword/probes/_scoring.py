"""The options of questions, scored by a model."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from itertools import islice

from foreword.evaluation.passages import Passage, PassageScore, score_passages
from foreword.runs.trained_model import TrainedModel


def score_groups(
    prompted: TrainedModel, groups: Sequence[Sequence[Passage]]
) -> Iterator[list[PassageScore]]:
    """Yield the scores of each group of passages, computed for many groups at once.

    Raises:
        UserError: the model cannot score a passage.
    """
    scores = score_passages(prompted, (passage for group in groups for passage in group))
    for group in groups:
        yield list(islice(scores, len(group)))


def shared_words(one: str, other: str) -> list[list[Passage]]:
    """Return the words that two sentences share, each given all other words; none: the sentences.

    Words that differ have probabilities of their own, whatever the sentences say.

    Reference: Nangia et al. 2020, section 4.
    """
    words = [[match.span() for match in re.finditer(r"\S+", text)] for text in (one, other)]
    spelled = [
        [text[begin:end] for begin, end in spans]
        for text, spans in zip((one, other), words, strict=True)
    ]
    matcher = difflib.SequenceMatcher(None, spelled[0], spelled[1], autojunk=False)
    parts: list[list[Passage]] = [[], []]
    for block in matcher.get_matching_blocks():
        for n in range(block.size):
            for side, text, first in zip((0, 1), (one, other), block[:2], strict=True):
                begin, end = words[side][first + n]
                parts[side].append(Passage(text[begin:end], text[:begin], text[end:]))
    return parts if parts[0] else [[Passage(one)], [Passage(other)]]
