"""The settings of fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from foreword.settings.kinds import part
from foreword.settings.ranges import (
    Count,
    CountOrZero,
    Folds,
    NonNegative,
    Ranged,
    ShareBelowOne,
    Trainings,
)
from foreword.train.optimizers._contract import OptimizerSettings
from foreword.train.schedules._contract import Schedule
from foreword.train.warmup import Warmup
from foreword.tuning.strategies._contract import Strategy


@dataclass(frozen=True)
class TuneSettings(Ranged):
    """The settings of fine-tuning.

    Attributes:
        strategy: a kind in `tuning/strategies/`.
        from_scratch: start the same network from random weights, as a baseline.
        reinit_layers: number of top layers that begin from random weights, as does a pooler of
            pretraining: where examples are few, some seeds fail because the top layers are made
            for pretraining's task alone (Zhang et al. 2021, section 5).
        seeds: number of runs, with seeds 1, 2, ... of the head, the order of examples, dropout and
            random weights.
        folds: cross-validation, in place of seeds and dev examples: the training examples in this
            many parts, each scored by a network that the others trained; the saved one learns from
            all. Labels have their proportions in each part, and groups are not divided.
        epochs: passes over the training examples.
        batch: examples per step.
        examples: number of training examples, drawn anew for each seed, each label in its
            proportion; default: all.
        max_length: the most tokens that are read at once, of an example or of a window of a long
            text; the length of pretraining's rows by default.
        optimizer: a kind in `train/optimizers/`; its learning rate is the strategy's.
        schedule: a kind in `train/schedules/`, over all epochs.
        dropout: dropout of the backbone; default: as in pretraining, which may have had none.
        clip: greatest norm of the gradient; 0 for none.
        precision: precision of training: auto, bf16 or fp32; `auto` is bf16 where the hardware
            multiplies it faster. Dev examples are scored in fp32, in which tuned models predict.
        score_every: epochs from one score on the dev examples to the next; the last epoch is scored
            too. Where dev examples are many and those to train on few, scoring takes most time.
        keep: the weights of the `last` epoch, or of the `best` by the dev examples' `metric`, whose
            score is then chosen by these examples and a little too high.
        patience: epochs without a better score after which a seed stops; with `keep` best alone.
        measures_change: also score how far the weights below the head moved, |end - start| /
            |start| (`distance`), and the largest eigenvalue of the Hessian of the training loss
            where they end (`curvature`); the smaller, the flatter.
        metric: the score that chooses: the epoch, or a learning rate; default: the task's first.
        calibrate: fit what makes probabilities right, and thresholds of several labels, on a tenth
            of the training examples held out from one more training; with `folds` on all of them.
    """

    strategy: Strategy = part("tuning/strategies", "full")
    from_scratch: bool = False
    reinit_layers: CountOrZero = 0
    seeds: Trainings = 3
    folds: Folds | None = None
    epochs: Count = 3
    batch: Count = 16
    examples: Count | None = None
    max_length: Count | None = None
    optimizer: OptimizerSettings = part("train/optimizers", "adamw", beta2=0.999)
    schedule: Schedule = part("train/schedules", "linear", warmup=Warmup(share=0.1))
    dropout: ShareBelowOne | None = None
    clip: NonNegative = 1.0
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    score_every: Count = 1
    keep: Literal["last", "best"] = "last"
    patience: Count | None = None
    measures_change: bool = False
    metric: str = ""
    calibrate: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.patience is not None and self.keep == "last":
            raise ValueError(
                "patience: requires keep='best'; set tune.keep=best, or leave patience out"
            )
        if self.score_every > 1 and self.keep == "best":
            raise ValueError(
                "score_every: keep='best' needs the score of every epoch; leave it out"
            )
        if self.folds is not None and self.keep == "best":
            raise ValueError("folds: no example is left to choose an epoch by; leave keep out")
        if self.folds is not None and self.examples is not None:
            raise ValueError("folds: are of all training examples; leave examples out")
        if self.from_scratch and self.reinit_layers:
            raise ValueError("reinit_layers: requires pretrained layers; leave from_scratch out")
