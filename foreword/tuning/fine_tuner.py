"""Fine-tuning with one seed: a new head, epochs, their scores, and whose weights are kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from foreword.errors import NotFiniteError, UserError
from foreword.nn.trained_rows import train_rows
from foreword.settings import kinds
from foreword.train.budget import Budget
from foreword.train.device import choose_precision
from foreword.train.finite import require_finite
from foreword.train.hooks import Hook
from foreword.train.loop import Loop
from foreword.train.step import StepOptions
from foreword.tuning.curvature import CURVED, largest_eigenvalue
from foreword.tuning.features import ExampleBatches, ExampleSet, Features
from foreword.tuning.network import Network
from foreword.tuning.outputs import SCORING_DTYPE, batch_loss, mean_loss, scored_outputs
from foreword.tuning.packed_examples import PackedExamples
from foreword.tuning.scores import CHANGE, MeanScore, Scores, as_gain, single
from foreword.tuning.seed_results import SeedResult
from foreword.tuning.settings import TuneSettings
from foreword.tuning.starting_network import adapted, start_name, starting_network
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tune_data import Draw, TuneData, count_steps
from foreword.types import Array

MAX_NONFINITE_STEPS = 5  # number of non-finite steps in a row that stops the training


class FineTuner(Hook):
    """Fine-tunes a network with one seed, and is the hook of its loop that scores epochs.

    Args:
        data: the examples, and the pretrained model, which is copied.
        draw: what it trains on and is scored on.
        step_done: called after each step with what is running.

    Attributes:
        curve: the scores of each scored epoch so far.
    """

    def __init__(
        self,
        task: Task,
        data: TuneData,
        settings: TuneSettings,
        draw: Draw,
        step_done: Callable[[str], None] = lambda note: None,
    ) -> None:
        self.task, self.data, self.settings = task, data, settings
        self.draw, self.seed = draw, (seed := draw.seed)
        trained, self._step_done = data.trained, step_done
        self.times, self._epoch = settings.epochs, 0
        self.curve: list[Scores] = []
        self._kept = -1  # the number in the curve of the epoch whose weights are kept
        self._judged: tuple[Task, Array | None, Any] = (task, None, None)  # of that epoch
        self._losses: list[float] = []
        self._weights: list[Tensor] = []
        self._scored: Callable[[Scores], None] = lambda scores: None
        self._trained: list[bool] = []  # whether each parameter is trained in the next step
        self.start = "from scratch" if settings.from_scratch else start_name(trained)
        self.strategy = kinds.name_of(settings.strategy)
        self.device = trained.device
        self.dtype = choose_precision(settings.precision, trained.device)
        fresh = data.train.template.fresh if settings.strategy.trains_backbone else ()
        self.network = starting_network(
            adapted(trained, settings.strategy, seed), task, data.labels, seed, fresh,
            from_scratch=settings.from_scratch, reinit_layers=settings.reinit_layers,
        )  # fmt: skip
        settings.strategy.prepare(self.network, seed)
        if settings.strategy.trains_new_tokens and (new := (*data.new_tokens, *fresh)):
            train_rows(self.network.backbone.embedding.token.weight, new)
        top = self.network.parameters_by_depth()[1:][::-1][: settings.reinit_layers]
        if not all(parameter.requires_grad for layer in top for parameter in layer):
            raise UserError(
                f"tune.reinit_layers: strategy '{self.strategy}' does not train all of the layers "
                "that are initialised again; use --strategy full"
            )
        self.train: ExampleSet = data.train.seeded(self.seed)
        self.dev: ExampleSet | None = draw.dev
        if not (settings.strategy.trains_backbone and data.train.auxiliary):
            self.network.token_head = None
        self.trained_parameters = self.network.count_trained()
        self.network.to(self.device)
        self.lr = settings.strategy.peak_lr(self.network.backbone.settings)
        self._begun = self._backbone_weights() if settings.measures_change else []

    def cache_features(self, cached: dict[tuple[int, torch.dtype], Features]) -> None:
        """Read cached features in place of the examples, since the backbone is not trained.

        Args:
            cached: the features of examples by their identity and precision, from other tuners with
                the same backbone; those that are missing are computed.
        """
        done = partial(self._step_done, f"{self.name}: computing features")

        def features(part: PackedExamples, dtype: torch.dtype) -> Features:
            if (id(part), dtype) not in cached:
                cached[id(part), dtype] = Features.compute(
                    self.network, part, self.device, dtype, done
                )
            return cached[id(part), dtype]

        self.train = features(self.data.train, self.dtype)
        if self.draw.dev is not None:
            self.dev = features(self.draw.dev, SCORING_DTYPE)

    def loop(self, scored: Callable[[Scores], None] = lambda scores: None) -> Loop:
        """Return the loop that trains to the end, and scores the dev examples after each epoch."""
        settings, self._scored = self.settings, scored
        optimizer = replace(settings.optimizer, lr=self.lr)
        return Loop(
            self.network,
            lambda batch: batch_loss(self.network, self.task, batch)[1],
            ExampleBatches(
                self.train, self.draw.numbers, settings.batch, self.seed, self.device.type
            ),
            optimizer.build_for(self.network, settings.strategy.rate_factors(self.network)),
            settings.schedule,
            Budget("steps", count_steps(self.draw, settings)),
            StepOptions(
                clip=settings.clip,
                dtype=self.dtype,
                dropout_seed=self.seed,
                max_nonfinite_steps=MAX_NONFINITE_STEPS,
            ),
            [self],
        )

    def begin(self, loop: Loop) -> None:
        """Choose what the first step trains."""
        self._train_parts(loop.progress)

    def after_step(self, loop: Loop) -> None:
        """Record the loss of the step and report it."""
        assert loop.last is not None
        if loop.last.is_finite:
            self._losses.append(loop.last.loss)
        self._train_parts(loop.progress)
        self._step_done(f"{self.name}, {self.draw.name}")

    def run(self, loop: Loop) -> None:
        """Score the epoch if it is its turn, and keep its weights if none was better.

        With `keep` best, training stops after `patience` epochs without gain.

        Raises:
            NotFiniteError: a weight is not finite.
        """
        require_finite(dict(self.network.named_parameters()))
        self._epoch += 1
        settings = self.settings
        if self._epoch % settings.score_every and self._epoch < settings.epochs:
            return
        loss = float(np.mean(self._losses)) if self._losses else math.nan
        scores, judged = self._score(loss, loop.state.skipped)
        self.curve.append(scores)
        self._scored(scores)
        self._losses.clear()
        now, is_best = len(self.curve) - 1, True
        if settings.keep == "best":
            metric = scores.chosen_metric(settings.metric)
            gains = [as_gain(metric, one[metric], self.task) for one in self.curve]
            is_best = self._kept < 0 or gains[now] > gains[self._kept]
            if is_best:
                self._weights = [p.detach().clone() for p in _parameters(loop)]
            elif settings.patience is not None and now - self._kept >= settings.patience:
                loop.stop()
        if is_best:
            self._kept, self._judged = now, judged

    def end(self, loop: Loop) -> None:
        """Give the network the weights of the epoch that is kept."""
        if self._weights and self._kept < len(self.curve) - 1:
            for parameter, weights in zip(_parameters(loop), self._weights, strict=True):
                parameter.data.copy_(weights)
        self._weights = []

    def result(self) -> SeedResult:
        """Return the result, once the loop has trained."""
        task, outputs, targets = self._judged
        parts = self.data.extra if self.draw.held is None else {}  # of a model that may be saved
        extra = {
            f"{name}_{metric}": MeanScore(score)
            for name, part in parts.items()
            for metric, score in task.judge.scores(self._outputs(part), part.targets).items()
        }
        kept = self.curve[self._kept]
        final = replace(kept, metrics={**kept.metrics, **extra})
        result = SeedResult(self.curve, final, task)
        if outputs is None:
            return result
        correct = task.judge.correct(outputs, targets)
        is_fitted_on = self.data.task.answers.fits or self.draw.held is not None
        return result._replace(
            confusion=task.judge.confusion(outputs, targets),
            correct=None if correct is None else correct.tolist(),
            outputs=outputs if is_fitted_on and outputs.dtype != object else None,
        )

    def diverged(self, error: NotFiniteError) -> SeedResult:
        """Return the result if several steps in a row were not finite, or the weights are not."""
        why = f"fine-tuning, {self.draw.name}: {error}; a lower --lr than {self.lr:g} may help"
        about = {**self._about(self.settings.epochs), "diverged": why}
        return SeedResult([], Scores(self.start, self.strategy, {}, about), self.task)

    @property
    def name(self) -> str:
        """The start and the strategy, for display."""
        return f"{self.start}, {self.strategy}"

    def _about(self, epoch: int) -> dict[str, int | float]:
        return {
            "seed": self.seed,
            "epoch": epoch,
            "lr": self.lr,
            "trained_parameters": self.trained_parameters,
        }

    def _train_parts(self, progress: float) -> None:
        """Choose what the next step trains; other parts have no gradients and no dropout."""
        self.settings.strategy.advance(self.network, progress)
        trained = [parameter.requires_grad for parameter in self.network.parameters()]
        if trained != self._trained:
            self._trained = trained
            self.network.train_parts()

    def finish(self) -> Network:
        """Return the network on the CPU, to predict: without what only training needed."""
        self.network.token_head = None
        self.settings.strategy.finish(self.network)
        return self.network.cpu().eval()

    def _score(
        self, train_loss: float, skipped: int
    ) -> tuple[Scores, tuple[Task, Array | None, Any]]:
        """Return the scores on the dev examples after an epoch, none without these.

        Besides the task with what their outputs chose, the outputs, and their targets.
        """
        scores: dict[str, float] = {}
        judged: tuple[Task, Array | None, Any] = (self.task, None, None)
        if self.dev is not None and self.draw.dev is not None:
            outputs, targets = self._outputs(self.dev), self.draw.dev.targets
            task = replace(self.task, **self.task.judge.chosen(outputs, targets))
            judged = (task, outputs, targets)
            scores |= task.judge.scores(outputs, targets)
        if self._begun and self._epoch == self.settings.epochs:
            scores |= self._change()
        scores |= {} if (mix := self.network.scalar_mix) is None else mix.learned()
        about = {**self._about(self._epoch), "train_loss": train_loss, "skipped_steps": skipped}
        return single(self.start, self.strategy, scores, **about), judged

    def _backbone_weights(self) -> list[Tensor]:
        return [weight.detach().clone() for weight in self.network.backbone.parameters()]

    def _change(self) -> dict[str, float]:
        """Return how far the weights moved, and how curved the training loss is where they are."""
        moved = [end - w for end, w in zip(self._backbone_weights(), self._begun, strict=True)]
        squares = [sum(float(w.double().square().sum()) for w in ws) for ws in (moved, self._begun)]
        distance = math.sqrt(squares[0]) / math.sqrt(squares[1])
        self.network.eval()
        trained = [weight for weight in self.network.parameters() if weight.requires_grad]
        looked_at = self.draw.numbers[:CURVED]
        curvature = largest_eigenvalue(
            lambda: mean_loss(self.network, self.task, self.train, looked_at), trained
        )
        self.network.train_parts()
        return dict(zip(CHANGE, (distance, curvature), strict=True))

    def _outputs(self, examples: ExampleSet) -> Array:
        return scored_outputs(self.task, self.network, examples)


def _parameters(loop: Loop) -> list[nn.Parameter]:
    """Return the parameters that are trained at any time."""
    return [p for group in loop.optimizer.param_groups for p in group["params"]]
