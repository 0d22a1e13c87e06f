"""An encoder in which each token sees its neighbours alone, as an example of a layout."""

from __future__ import annotations

from dataclasses import dataclass, replace

from foreword.layouts._contract import Layout
from foreword.layouts.encoder import Encoder
from foreword.nn.masks import WindowMask
from foreword.settings.ranges import Count
from foreword.types import Batch, Example, Vocab


@dataclass(frozen=True)
class LocalEncoder(Layout):
    """The layout of masked language models, with a limit to how far each position sees.

    With objectives that predict in place. What is read or predicted does not change, only the mask:
    a layer sees `reach` positions to each side, so n layers see n times as far.

    Attributes:
        reach: positions to each side.
    """

    reach: Count = 16

    def arrange(self, example: Example, vocab: Vocab) -> Batch:
        """Return the batch of layout `encoder` with a narrower mask.

        Raises:
            UserError: the objective does not predict in place.
        """
        batch = Encoder().arrange(example, vocab)
        return replace(batch, mask=batch.mask & WindowMask(self.reach))
