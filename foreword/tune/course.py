"""One course of fine-tuning, a seed's: a fresh head, epochs, and scores after each."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from foreword import kinds
from foreword.data.rng import RowRng, permute
from foreword.errors import NotFiniteError, TrainingStoppedError
from foreword.kinds import part
from foreword.nn.init import initialise
from foreword.ranges import Count, Decay, NonNegative, Ranged, ShareBelowOne
from foreword.train.device import autocast, choose_precision
from foreword.train.finite import require_finite
from foreword.train.opened import Opened
from foreword.train.optim.adamw import Adamw
from foreword.train.schedule.linear import Linear
from foreword.train.step import take
from foreword.train.warmup import Warmup
from foreword.tune.answers import Answers, Words
from foreword.tune.contracts import Network, Strategy, Task, layer_mix
from foreword.tune.features import FeatureBatch, Features, features_of, readings
from foreword.tune.result import Row
from foreword.tune.rows import Examples, SpotBatch
from foreword.types import Array, Loss

SCORED = torch.float32  # dev examples, whatever is trained in: as the tuned model predicts
PATIENCE = 5  # so many non-finite steps in a row stop a course


@dataclass(frozen=True)
class TuneSettings(Ranged):
    """How to fine-tune.

    Attributes:
        strategy: a kind in `tune/strategies/`.
        from_scratch: the same network from random weights, to see what pretraining was worth.
        seeds: so many runs, of seed 1, 2, ...: head, order, dropout, and the random weights.
        epochs: times that each training example is seen.
        batch: examples per step.
        max_length: the most tokens of an example; as long as pretraining's rows if unsaid.
        warmup: share of the steps in which the learning rate rises; then it falls to 0.
        decay: weight decay.
        clip: greatest norm of the gradient; 0 for none.
        precision: of training: auto, bf16 or fp32; `auto` is bf16 where the hardware multiplies it
            faster. Dev examples are scored in fp32, in which the tuned model predicts.
    """

    strategy: Strategy = part("tune/strategies", "full")
    from_scratch: bool = False
    seeds: Count = 3
    epochs: Count = 3
    batch: Count = 16
    max_length: Count | None = None
    warmup: ShareBelowOne = 0.1
    decay: Decay = 0.01
    clip: NonNegative = 1.0
    precision: Literal["auto", "bf16", "fp32"] = "auto"


@dataclass(frozen=True)
class Data:
    """What all courses share."""

    train: Examples | Answers
    dev: Examples | Answers
    labels: tuple[str, ...]


class Kept(NamedTuple):
    """What heads read of the examples by a body that stays as it is."""

    train: Features
    dev: Features


class Course:
    """A network and all that trains it, from one seed.

    Args:
        opened: the pretrained model; stays as it is.
        task: what is to be learned.
        data: the examples.
        settings: how.
        seed: of the head, the order, dropout, and the body's random weights from scratch.
    """

    def __init__(
        self, opened: Opened, task: Task, data: Data, settings: TuneSettings, seed: int
    ) -> None:
        self.task, self.data, self.settings, self.seed = task, data, settings, seed
        self.start = "from scratch" if settings.from_scratch else "pretrained"
        self.strategy = kinds.name_of(settings.strategy)
        self.device = opened.device
        self.dtype = choose_precision(settings.precision, opened.device)
        body_seed = seed if settings.from_scratch else None
        self.network = build_network(opened, task, data.labels, body_seed)
        start_head(self.network, seed)
        settings.strategy.prepare(self.network)
        self.train: Examples | Answers | Features = data.train
        self.dev: Examples | Answers | Features = data.dev
        if settings.strategy.trains_body:
            start_tokens(self.network, data.train.frame.fresh, seed)
        if not (settings.strategy.trains_body and data.train.auxiliary):
            self.network.token_head = None
        self.network.to(self.device)
        self.lr = settings.strategy.peak_lr(self.network.backbone.settings)
        self.optimizer = Adamw(lr=self.lr, beta2=0.999, decay=settings.decay).build(self.network)
        self.schedule = Linear(Warmup(share=settings.warmup))
        self.steps = self.skipped = self.skipped_in_row = 0

    def keep(self, kept: Kept | None, step_done: Callable[[str], None]) -> Kept:
        """Learns from what the head reads alone, for the body stays as it is.

        Args:
            kept: of another course with the same body; None to read each example once.
            step_done: called after each chunk that is read.

        Returns:
            What was kept, for other courses.
        """
        if kept is None:
            done = partial(step_done, f"{self.start}, {self.strategy}: reading once")
            of = partial(Features.of, self.network, device=self.device, done=done)
            kept = Kept(of(self.data.train, dtype=self.dtype), of(self.data.dev, dtype=SCORED))
        self.train, self.dev = kept
        return kept

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in which each training example is seen once."""
        return count_steps(self.data, self.settings)

    def run(self, step_done: Callable[[str], None]) -> list[Row]:
        """Trains to the end; a row of scores on the dev examples after each epoch.

        Raises:
            TrainingStoppedError: several steps in a row were not finite, or the weights are not.
        """
        curve = []
        for epoch in range(self.settings.epochs):
            losses = []
            self.settings.strategy.train(self.network)
            for numbers in order_of(len(self.data.train), self.settings.batch, self.seed, epoch):
                losses.append(self._step(numbers))
                step_done(f"{self.start}, {self.strategy}, seed {self.seed}")
            self._require_finite()
            finite = [loss for loss in losses if math.isfinite(loss)]
            curve.append(self._score(epoch + 1, float(np.mean(finite)) if finite else math.nan))
        return curve

    def _step(self, numbers: Array) -> float:
        """One step on the training examples `numbers`; their loss in nats."""
        # `take` asks of a batch only that it can move to a device.
        batches: list[Any] = list(self.train.batches(numbers, self.device.type))
        total = self.settings.epochs * self.steps_per_epoch
        factor = self.schedule.factor(self.steps / total, self.steps, total)
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr * factor
        words = RowRng(self.seed, np.asarray([self.steps])).bits(len(batches))[0]
        result = take(
            self.network,
            self.optimizer,
            batches,
            self._loss,
            clip=self.settings.clip,
            dtype=self.dtype,
            seeds=[int(word >> np.uint64(1)) for word in words],
        )
        self.steps += 1
        self.skipped += not result.is_finite
        self.skipped_in_row = 0 if result.is_finite else self.skipped_in_row + 1
        if self.skipped_in_row >= PATIENCE:
            raise self._stopped(f"{PATIENCE} steps in a row were not finite")
        return result.loss

    def _require_finite(self) -> None:
        try:
            require_finite(dict(self.network.named_parameters()))
        except NotFiniteError as error:
            raise self._stopped(str(error)) from error

    def _stopped(self, why: str) -> TrainingStoppedError:
        return TrainingStoppedError(
            f"fine-tuning, seed {self.seed}: {why}; a lower --lr than {self.lr:g} may mend it"
        )

    def _loss(self, batch: Any) -> Loss:
        network = self.network
        if isinstance(batch, FeatureBatch):
            return self.task.loss(network.outputs(batch.features), batch.targets)
        hidden = network.body(batch.batch)
        features = network.features(hidden, batch.rows, batch.columns, batch.lengths)
        outputs = network.outputs(features)
        loss = self.task.loss(outputs, batch.targets)
        if network.token_head is None:
            return loss
        return Loss(loss.total + network.token_head.loss(hidden, batch.batch).total, loss.weight)

    def finish(self) -> Network:
        """The network on the CPU, without what only its training needed."""
        self.network.token_head = None
        return self.network.cpu()

    def _score(self, epoch: int, train_loss: float) -> Row:
        outputs = predict(self.network, self.dev, self.device, SCORED)
        return {
            "start": self.start,
            "strategy": self.strategy,
            "seed": self.seed,
            "epoch": epoch,
            "lr": self.lr,
            "train_loss": train_loss,
            "skipped_steps": self.skipped,
            **self.task.scores(outputs, self.data.dev.targets),
            **(self.network.mix.learned() if self.network.mix is not None else {}),
        }


def count_steps(data: Data, settings: TuneSettings) -> int:
    """Steps per epoch."""
    return -(-len(data.train) // settings.batch)


def build_network(
    opened: Opened, task: Task, labels: tuple[str, ...], scratch_seed: int | None
) -> Network:
    """A copy of the pretrained body, or one of random weights, under a head."""
    if scratch_seed is None:
        model = copy.deepcopy(opened.model)
    else:
        model = opened.recipe.build(opened.vocab)
        initialise(model, scratch_seed)
    token_head = model.token_head if "token" in model.heads else None
    settings = model.backbone.settings
    head = task.head(settings.state_width, labels)
    if head is None:
        return Network(model.backbone, Words(model.token_head))
    return Network(model.backbone, head, token_head, layer_mix(task, settings))


def start_head(network: Network, seed: int) -> None:
    """Linear maps normal with `init_std`, biases 0; an output layer of pretraining stays."""
    if isinstance(network.head, Words):
        return
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in network.head.modules():
            if isinstance(module, nn.Linear):
                drawn = torch.randn(module.weight.shape, generator=random)
                module.weight.copy_(drawn * network.backbone.settings.init_std)
                module.bias.zero_()


def start_tokens(network: Network, ids: Sequence[int], seed: int) -> None:
    """New embeddings, normal with `init_std`, for tokens that pretraining never showed."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for number in ids:
            weight = network.backbone.embedding.token.weight
            drawn = torch.randn(weight.shape[1], generator=random)
            weight[number] = drawn * network.backbone.settings.init_std


def order_of(count: int, batch: int, seed: int, epoch: int) -> list[Array]:
    """The examples of an epoch in an order of its own, in batches of the same size or the next."""
    order = permute(np.arange(count), count, (seed << 20) + epoch)
    return np.array_split(order, -(-count // batch))


def outputs_of(network: Network, batch: SpotBatch | FeatureBatch) -> Tensor:
    """The head's outputs, (outputs, labels) float32."""
    if isinstance(batch, FeatureBatch):
        return network.outputs(batch.features)
    return network.outputs(features_of(network, batch))


def predict(
    network: Network,
    examples: Examples | Answers | Features,
    device: torch.device,
    dtype: torch.dtype,
) -> Array:
    """The outputs of every example in order, (spots, outputs) float32; in evaluation mode."""
    network.eval()
    outputs, numbers = [], []
    with torch.inference_mode():
        for batch in readings(examples, device.type):
            with autocast(device, dtype):
                outputs.append(outputs_of(network, batch.to(device)).cpu().numpy())
            numbers.append(batch.numbers)
    order = np.argsort(np.concatenate(numbers), kind="stable")
    return np.asarray(np.concatenate(outputs)[order])
