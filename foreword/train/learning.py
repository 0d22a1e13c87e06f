"""Models that learn by a course of their own, in epochs over the whole text, and not in the loop.

A run of such a model is done or has not begun: its one checkpoint is written last. A step of its
log is an epoch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

import torch

from foreword.data.shards import Shards
from foreword.errors import UserError
from foreword.nn.model import Model
from foreword.train import checkpoint, log
from foreword.train.budget import Budget, Spent
from foreword.train.continued import START
from foreword.train.feed import Feed
from foreword.train.loop import Progress, Watcher
from foreword.train.recipe import Recipe
from foreword.train.step import evaluate
from foreword.types import Array, Batch, Loss
from foreword.vectors.contract import VectorCourse
from foreword.vectors.words import Words


class Learner(Protocol):
    """A backbone that learns by a course of its own."""

    def learn(
        self,
        tokens: Array,
        starts: Array,
        course: VectorCourse,
        progress: Callable[[float, float], None],
    ) -> Words:
        """Learns from texts, and says what of them it has read."""


def settle(recipe: Recipe) -> Recipe:
    """The recipe on the processor and in fp32, where such models learn."""
    return replace(recipe, train=replace(recipe.train, device="cpu", precision="fp32"))


def course_of(recipe: Recipe) -> VectorCourse:
    """What the recipe says of it.

    Raises:
        UserError: its budget is not a whole number of epochs.
    """
    budget, settings = Budget.of(recipe.train), cast(Any, recipe.model)
    if budget.unit != "epochs" or budget.amount != int(budget.amount):
        raise UserError(
            f"train: word vectors read the whole text a number of times, and the budget is "
            f"{budget.amount:g} {budget.unit}; use --set train.epochs=5 alone"
        )
    epochs = int(budget.amount)

    def lr(progress: float) -> float:
        return recipe.optimizer.lr * recipe.schedule.factor(progress, 0, epochs)

    return VectorCourse(
        architecture=settings.architecture,
        window=settings.window,
        subsample=settings.subsample,
        epochs=epochs,
        lr=lr,
        seed=recipe.train.seed,
        threads=torch.get_num_threads(),
    )


def learn(
    run: Path,
    recipe: Recipe,
    model: Model,
    shards: Shards,
    feeds: tuple[Feed, Feed | None],
    bytes_per_token: float | None,
    watcher: Watcher,
    progress: Callable[[float, float], None],
) -> bool:
    """Learns, measures and saves; a run that was killed before begins again.

    Args:
        run: the run folder.
        recipe: resolved.
        model: whose backbone is a `Learner`.
        shards: the training text.
        feeds: of the training text and of the held-out one, None where there is none.
        bytes_per_token: of the held-out text.
        watcher: who looks on.
        progress: is told how much is done, and of how much.

    Returns:
        True.

    Raises:
        UserError: the budget is not in epochs, the text has no words, gensim is missing, ...
    """
    if (run / START).exists():
        raise UserError("--from: word vectors are learned from text alone; leave it out")
    course, began = course_of(recipe), time.monotonic()
    learner = cast(Learner, model.backbone)
    words = learner.learn(shards.tokens, shards.document_starts, course, progress)
    spent = Spent(
        steps=course.epochs,
        tokens=words.total * course.epochs,
        seconds=time.monotonic() - began,
        epochs=float(course.epochs),
    )
    rate = spent.tokens / max(spent.seconds, 1e-9)
    watcher.note(
        f"{words.total:,} words, {int((words.counts > 0).sum()):,} different ones, "
        f"{course.epochs} times: {rate:,.0f} words/s in {spent.seconds:.1f} s"
    )
    log.rewind(run, 0)  # of an attempt that was killed before its checkpoint was whole
    facts = {"step": spent.steps, "tokens": spent.tokens, "seconds": round(spent.seconds, 3)}
    train = {"loss": _loss(recipe, model, feeds[0]), "lr": course.lr(1.0)}
    log.append(run, {"kind": "train", **facts, **train, "tokens_per_second": rate})
    loss = None if feeds[1] is None else _loss(recipe, model, feeds[1])
    if loss is not None:
        bits = bytes_per_token and loss / math.log(2) / bytes_per_token
        figures = {"perplexity": math.exp(min(loss, 700.0)), "bits_per_byte": bits}
        record: dict[str, Any] = {"kind": "heldout", **facts, "loss": loss, **figures}
        log.append(run, record)
        watcher.record(record, 1.0)
    folder = run / "checkpoints" / checkpoint.name_of(spent.steps)
    state = Progress(spent, best_loss=loss, best=folder.name)
    checkpoint.save(folder, model, None, state.dump())
    return True


def _loss(recipe: Recipe, model: Model, feed: Feed) -> float:
    """Nats per prediction of the next word."""

    def loss_of(batch: Batch) -> Loss:
        return recipe.objective.loss(model, batch)

    return evaluate(model, feed.heldout(recipe.train.heldout_rows), loss_of, torch.float32).loss
