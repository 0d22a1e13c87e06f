"""The contract of smoothings: probabilities of seen n-grams and back-off weights of contexts.

    p(word | context) = exp(log_probs[context word])                           if it was seen
                      = exp(log_backoffs[context]) p(word | context less its first word)   else

An unseen context backs off with weight `unseen`: 1, except in stupid back-off. This is the model of
ARPA files, and of every kind in `ngrams/smoothing/`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from foreword.ngrams.counting import Level
from foreword.ngrams.scratch import Scratch
from foreword.settings.ranges import Ranged
from foreword.types import Array


@dataclass(frozen=True)
class SmoothedOrder:
    """The smoothed probabilities of one order.

    Attributes:
        log_probs: log-probability of each n-gram, in nats; (n-grams,) float32.
        log_backoffs: the back-off weights of their contexts, in nats; (n-grams of the order below,)
            float32, a single one at order 1.
        note: a remark about the smoothing for the user, or "".
    """

    log_probs: Array
    log_backoffs: Array
    note: str = ""


class Smoothing(Ranged, ABC):
    """A kind in `ngrams/smoothing/`.

    Attributes:
        is_normalised: whether the probabilities of all words after a context add up to 1.
    """

    is_normalised: ClassVar[bool] = True

    @property
    def unseen(self) -> float:
        """The back-off weight of an unseen context; 1 in a distribution."""
        return 1.0

    @abstractmethod
    def estimate(
        self, levels: Sequence[Level], is_word: Array, scratch: Scratch
    ) -> list[SmoothedOrder]:
        """Return the probabilities of all n-grams, order 1 first.

        Args:
            levels: counts, order 1 first.
            is_word: the ids that may be predicted, seen or not; others, such as the token that
                begins a text, have probability 0; (vocab,) bool.
            scratch: holds arrays that may not fit into memory.
        """
