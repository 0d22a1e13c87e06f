"""The arguments of verbs that write text: sampling, or beam search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from foreword.settings.ranges import (
    Count,
    CountOrZero,
    LengthPenalty,
    PositiveShare,
    Seed,
    Temperature,
)

if TYPE_CHECKING:
    from foreword.evaluation.beam import Beams
    from foreword.evaluation.sampling import Sampling


@dataclass(frozen=True, kw_only=True)
class Decodes:
    """How to decode.

    Attributes:
        tokens: maximum number of new tokens.
        temperature: sampling temperature; 0 always takes the likeliest token.
        top_k: sample from the k likeliest tokens; 0 for all.
        top_p: sample from the likeliest tokens that sum up to p.
        seed: equal seeds give equal texts.
        beams: use beam search with this many beams; 0 samples.
        length_penalty: with beams: 0 prefers short texts, 1 ranks by the mean.
    """

    tokens: Count = 100
    temperature: Temperature = 0.8
    top_k: CountOrZero = 50
    top_p: PositiveShare = 1.0
    seed: Seed = 1
    beams: CountOrZero = 0
    length_penalty: LengthPenalty = 1.0

    def beam_search(self) -> Beams:
        """Return the settings of beam search."""
        from foreword.evaluation.beam import Beams

        return Beams(self.beams, self.length_penalty, self.tokens)

    def sampling(self) -> Sampling:
        """Return the settings of sampling."""
        from foreword.evaluation.sampling import Sampling

        return Sampling(self.tokens, self.temperature, self.top_k, self.top_p, self.seed)
