"""Fine-tuning with one seed: a new head, epochs, and scores after each epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import torch

from foreword.errors import NotFiniteError, TrainingStoppedError, UserError
from foreword.nn.evaluation_mode import evaluation_mode
from foreword.nn.trained_rows import train_rows
from foreword.runs.trained_model import TrainedModel
from foreword.settings import kinds
from foreword.settings.kinds import part
from foreword.settings.ranges import (
    Count,
    CountOrZero,
    NonNegative,
    Ranged,
    ShareBelowOne,
    Trainings,
)
from foreword.train.budget import Budget
from foreword.train.device import autocast, choose_precision
from foreword.train.loop import Loop, StepOptions
from foreword.train.optimizers._contract import OptimizerSettings
from foreword.train.schedules._contract import Schedule
from foreword.train.warmup import Warmup
from foreword.tuning.answers import AnswerExamples
from foreword.tuning.epochs import BestEpoch, ScoreEpochs
from foreword.tuning.example_batches import ExampleBatches
from foreword.tuning.features import Features
from foreword.tuning.model_settings import adapted
from foreword.tuning.network import ExampleSet, Network, NetworkBatch
from foreword.tuning.result import Row
from foreword.tuning.rows import PackedExamples
from foreword.tuning.starting_network import start_name, starting_network
from foreword.tuning.strategies._contract import Strategy
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tasks._writing import WritingTask
from foreword.types import Array, Loss

SCORING_DTYPE = torch.float32  # of dev examples in any training, since tuned models predict in it
MAX_NONFINITE_STEPS = 5  # number of non-finite steps in a row that stops the training


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
        epochs: passes over the training examples.
        batch: examples per step.
        examples: number of training examples, drawn anew for each seed, each label in its
            proportion; default: all.
        max_length: the most tokens of an example; the length of pretraining's rows by default.
        optimizer: a kind in `train/optimizers/`; its learning rate is the strategy's.
        schedule: a kind in `train/schedules/`, over all epochs.
        dropout: of the backbone; default: that of pretraining, which may have had none.
        clip: greatest norm of the gradient; 0 for none.
        precision: of training: auto, bf16 or fp32; `auto` is bf16 where the hardware multiplies it
            faster. Dev examples are scored in fp32, in which the tuned model predicts.
        score_every: epochs from one score on the dev examples to the next; the last epoch is scored
            too. Where dev examples are many and those to train on few, scoring takes most time.
        keep: the weights of the `last` epoch, or of the `best` by the dev examples' `metric`, whose
            score is then chosen by these examples and a little too high.
        patience: epochs without a better score after which a seed stops; with `keep` best alone.
        metric: the score that chooses: the epoch, or a learning rate; default: the task's first.
    """

    strategy: Strategy = part("tuning/strategies", "full")
    from_scratch: bool = False
    reinit_layers: CountOrZero = 0
    seeds: Trainings = 3
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
    metric: str = ""

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
        if self.from_scratch and self.reinit_layers:
            raise ValueError("reinit_layers: requires pretrained layers; leave from_scratch out")


@dataclass(frozen=True)
class TuneData:
    """The encoded examples and their labels, the same for every seed and settings.

    Attributes:
        train: the training examples of all seeds.
        dev: the examples to score.
        labels: the labels, in the order of the head's outputs.
        numbers: which of the training examples seed 1, 2, ... trains on, (examples,) int64 each;
            of their inputs, if each stands for itself (see `PooledExamples.whole`).
        further: more examples to score when training has ended, by name.
        added: tokens that the task or the template added to the vocabulary.
    """

    train: PackedExamples
    dev: PackedExamples
    labels: tuple[str, ...]
    numbers: tuple[Array, ...]
    further: Mapping[str, PackedExamples] = field(default_factory=dict)
    added: tuple[int, ...] = ()


class SeedResult(NamedTuple):
    """The result of fine-tuning with one seed.

    Attributes:
        curve: a row for each epoch.
        final: the row of the epoch that was kept, with the scores on the further examples.
        task: the task with what that epoch's outputs chose.
        confusion: how often each label (row) got each answer (column) then; None without classes.
        correct: how far each dev example was answered correctly then, 0 to 1; None unless the mean
            is the accuracy.
    """

    curve: list[Row]
    final: Row
    task: Task
    confusion: list[list[int]] | None
    correct: list[float] | None = None

    @property
    def has_diverged(self) -> bool:
        """Whether training stopped, so that `final` has no scores."""
        return bool(self.final.get("diverged"))


class _Answered(NamedTuple):
    """How an epoch's dev examples were answered; as in `SeedResult`."""

    task: Task
    confusion: list[list[int]] | None
    correct: Array | None


class CachedFeatures(NamedTuple):
    """The features of the examples from a backbone that is not trained."""

    train: Features
    dev: Features


class FineTuner:
    """Fine-tunes a network with one seed.

    Args:
        trained: the pretrained model, which is copied.
        task: the task.
        data: the examples.
        settings: the settings.
        seed: seed of the head, the order of examples, dropout, and random weights.
    """

    def __init__(
        self, trained: TrainedModel, task: Task, data: TuneData, settings: TuneSettings, seed: int
    ) -> None:
        self.task, self.data, self.settings, self.seed = task, data, settings, seed
        self._answered: list[_Answered] = []  # after each epoch
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
        if settings.strategy.trains_new_tokens and (new := (*data.added, *fresh)):
            train_rows(self.network.backbone.embedding.token.weight, new)
        self._require_trained(settings.reinit_layers)
        self.train: ExampleSet = data.train
        self.dev: ExampleSet = data.dev
        if not (settings.strategy.trains_backbone and data.train.auxiliary):
            self.network.token_head = None
        self.trained_parameters = self.network.count_trained()
        self.network.to(self.device)
        self.lr = settings.strategy.peak_lr(self.network.backbone.settings)

    def _require_trained(self, layers: int) -> None:
        """Check that the top layers are trained, if they are not pretrained either.

        Raises:
            UserError: they are not.
        """
        top = self.network.parameters_by_depth()[1:][::-1][:layers]
        if not all(parameter.requires_grad for layer in top for parameter in layer):
            raise UserError(
                f"tune.reinit_layers: strategy '{self.strategy}' does not train all of the layers "
                "that are initialised again; use --strategy full"
            )

    def cache_features(
        self, cached: CachedFeatures | None, step_done: Callable[[str], None]
    ) -> CachedFeatures:
        """Use cached features in place of the examples, since the backbone is not trained.

        Args:
            cached: the features of another tuner with the same backbone; None to compute them.
            step_done: called after each chunk that is computed.

        Returns:
            The features, for other tuners with the same backbone.
        """
        if cached is None:
            done = partial(step_done, f"{self.name}: computing features")
            compute = partial(Features.compute, self.network, device=self.device, done=done)
            cached = CachedFeatures(
                compute(self.data.train, dtype=self.dtype),
                compute(self.data.dev, dtype=SCORING_DTYPE),
            )
        self.train, self.dev = cached
        return cached

    def run(self, step_done: Callable[[str], None], scored: Callable[[Row], None]) -> SeedResult:
        """Train to the end, and score the dev examples after each epoch.

        Args:
            step_done: called after each step.
            scored: called with the row of each epoch.

        Raises:
            TrainingStoppedError: several steps in a row were not finite, or the weights are not.
        """
        settings = self.settings
        steps = settings.epochs * count_steps(self.data, settings)
        scores = ScoreEpochs(
            self.network,
            settings.epochs,
            self._train_parts,
            self.score,
            partial(step_done, f"{self.name}, seed {self.seed}"),
            scored,
            None
            if settings.keep == "last"
            else BestEpoch(settings.metric, settings.patience, self.task),
            settings.score_every,
        )
        optimizer = replace(settings.optimizer, lr=self.lr)
        loop = Loop(
            self.network,
            self._loss,
            ExampleBatches(
                self.train,
                self.data.numbers[self.seed - 1],
                settings.batch,
                self.seed,
                self.device.type,
            ),
            optimizer.build(self.network, settings.strategy.rate_factors(self.network)),
            settings.schedule,
            Budget("steps", steps),
            StepOptions(
                clip=settings.clip,
                dtype=self.dtype,
                dropout_seed=self.seed,
                max_nonfinite_steps=MAX_NONFINITE_STEPS,
            ),
            [scores],
        )
        try:
            loop.train()
        except NotFiniteError as error:
            raise TrainingStoppedError(
                f"fine-tuning, seed {self.seed}: {error}; a lower --lr than {self.lr:g} may help"
            ) from error
        kept = self._answered[scores.kept_row]
        final = scores.curve[scores.kept_row] | self._score_further(kept.task)
        correct = None if kept.correct is None else kept.correct.tolist()
        return SeedResult(scores.curve, final, kept.task, kept.confusion, correct)

    @property
    def name(self) -> str:
        """The start and the strategy, for display."""
        return f"{self.start}, {self.strategy}"

    def _train_parts(self, progress: float) -> None:
        """Choose what the next step trains; other parts have no gradients and no dropout."""
        self.settings.strategy.advance(self.network, progress)
        trained = [parameter.requires_grad for parameter in self.network.parameters()]
        if trained != self._trained:
            self._trained = trained
            self.network.train_parts()

    def _loss(self, batch: NetworkBatch) -> Loss:
        features, auxiliary = batch.features_and_loss(self.network)
        outputs = self.network.training_outputs(features, batch.targets)
        loss = self.task.loss(outputs, batch.targets, batch.numbers)
        return Loss(loss.total + auxiliary, loss.count)

    def finish(self) -> Network:
        """Return the network on the CPU, to predict: without what only training needed."""
        self.network.token_head = None
        self.settings.strategy.finish(self.network)
        return self.network.cpu().eval()

    def score(self, epoch: int, train_loss: float, skipped: int) -> Row:
        """Return the scores on the dev examples, as a row of results."""
        outputs, targets = self._outputs(self.dev), self.data.dev.targets
        fitted = replace(self.task, **self.task.judge.chosen(outputs, targets))
        judge = fitted.judge
        self._answered.append(
            _Answered(fitted, judge.confusion(outputs, targets), judge.correct(outputs, targets))
        )
        return {
            "start": self.start,
            "strategy": self.strategy,
            "seed": self.seed,
            "epoch": epoch,
            "lr": self.lr,
            "trained_parameters": self.trained_parameters,
            "train_loss": train_loss,
            "skipped_steps": skipped,
            **judge.scores(outputs, targets),
            **(self.network.scalar_mix.learned() if self.network.scalar_mix is not None else {}),
        }

    def _score_further(self, task: Task) -> Row:
        """Return the scores on the further examples, which choose nothing: `NAME_accuracy`."""
        return {
            f"{name}_{metric}": score
            for name, part in self.data.further.items()
            for metric, score in task.judge.scores(self._outputs(part), part.targets).items()
        }

    def _outputs(self, examples: ExampleSet) -> Array:
        return scored_outputs(self.task, self.network, examples)


def count_steps(data: TuneData, settings: TuneSettings) -> int:
    """Return the steps per epoch."""
    return -(-len(data.numbers[0]) // settings.batch)


def scored_outputs(
    task: Task,
    network: Network,
    examples: ExampleSet,
    done: Callable[[Array], None] | None = None,
) -> Array:
    """Return a network's outputs for examples, or the texts that it writes if the task writes.

    Args:
        task: the task.
        network: the network.
        examples: the examples.
        done: called with the numbers of examples as they are answered.
    """
    if task.judge.writes:
        assert isinstance(task, WritingTask) and isinstance(examples, AnswerExamples)
        return examples.write(network, task.most_tokens((), examples.prompted), done)
    return predict(network, examples, next(network.parameters()).device, SCORING_DTYPE, done)


def predict(
    network: Network,
    examples: ExampleSet,
    device: torch.device,
    dtype: torch.dtype,
    done: Callable[[Array], None] | None = None,
) -> Array:
    """Return the outputs of every example in order, (outputs, labels) float32.

    The network is in evaluation mode meanwhile.

    Args:
        network: the network.
        examples: the examples.
        device: the network's device.
        dtype: the precision to compute in.
        done: called after each batch with the numbers of its examples.
    """
    outputs, numbers = [], []
    with evaluation_mode(network), torch.inference_mode():
        for batch in examples.scoring_batches(device.type):
            with autocast(device, dtype):
                on_device = batch.to(device)
                batch_outputs = network.scored_outputs(
                    on_device.features(network), on_device.targets
                )
                outputs.append(batch_outputs.cpu().numpy())
            numbers.append(batch.numbers)
            if done is not None:
                done(np.unique(batch.numbers))
    order = np.argsort(np.concatenate(numbers), kind="stable")
    return np.asarray(np.concatenate(outputs)[order])
