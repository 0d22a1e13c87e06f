"""How a run continues a trained model, in shares of what that model was trained with."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.settings.ranges import EpochsOfText, Positive, Ranged, ShareBelowOne


@dataclass(frozen=True)
class ContinuationSettings(Ranged):
    """Settings of `[continuation]`: with `--from`, a run keeps what the model was trained with.

    Objective, layout, packing, optimizer and batch are the model's. Without a budget of its own the
    run ends at `epochs` or `share`, whichever comes first.

    Attributes:
        lr: peak learning rate, as a share of the model's.
        epochs: how many times the new text is read at most.
        share: tokens read at most, as a share of those that the model was trained on.
        replay: share of the rows that come from the model's own text, if its run still has it.
    """

    lr: Positive = 0.5
    epochs: EpochsOfText | None = 10.0
    share: Positive | None = 0.2
    replay: ShareBelowOne = 0.2
