"""The stages of a training: what changes while a model trains, and at which steps.

Training is cut into segments in which nothing changes (`Recipe.segments`). A segment begins at the
first step at which its share of the budget is spent; then the step is fixed: it is written to the
log before the segment's first batch, and stored in every checkpoint. So a batch is a function of
recipe and step, also where a budget counts hours.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch.optim import Optimizer

from foreword.data.mixed_rows import MixedRows
from foreword.data.mixture_plan import TOLERANCE
from foreword.nn.init import shapes_only
from foreword.nn.model import Architecture, Model
from foreword.objectives._contract import ModelWithLoss
from foreword.runs.recipe import Recipe, Segment
from foreword.runs.setup import TrainingSetup, step_flops
from foreword.settings import config
from foreword.settings.ranges import is_curve
from foreword.train import log
from foreword.train.feed import Feed
from foreword.train.hooks import Hook
from foreword.train.loop import Loop
from foreword.types import Batch


class StagedBatches:
    """The batches of a training whose recipe changes (`foreword.train.loop.Batches`).

    Args:
        feed: the batches of the last stage.
        segments: the parts of training.

    Attributes:
        begins: the steps at which segments began.
    """

    def __init__(self, feed: Feed, segments: Sequence[Segment]) -> None:
        self._feed, self._segments = feed, segments
        self.begins = [0]
        self.epochs, self.count_tokens = feed.epochs, feed.count_tokens

    def micro_batches(self, step: int) -> list[Batch]:
        """Return this process's micro-batches of a step in a segment that has begun."""
        return self.feed_of(self._segment_at(step)).micro_batches(step)

    def ahead(self, step: int) -> Generator[list[Batch]]:
        """Yield the micro-batches of `step`, `step` + 1, ...; a new segment's from its begin on."""
        while True:
            number = self._segment_at(step)
            with contextlib.closing(self.feed_of(number).ahead(step)) as ahead:
                while self._segment_at(step) == number:
                    yield next(ahead)
                    step += 1

    def feed_of(self, number: int) -> Feed:
        """Return the batches of a segment."""
        begins = self.begins[: number + 1] if len(self._segments) > 1 else ()
        return feed_of(self._feed, self._segments[number].recipe, begins)

    def _segment_at(self, step: int) -> int:
        return max(n for n, begin in enumerate(self.begins) if begin <= step)


def feed_of(feed: Feed, recipe: Recipe, begins: Sequence[int] = ()) -> Feed:
    """Return a feed with the objective and the layout of a stage.

    Args:
        feed: the feed of the last stage.
        recipe: the recipe of the stage.
        begins: of a mixture, the steps at which its segments began; none for those expected.
    """
    packed = feed.packed
    if not begins and (recipe.objective, recipe.layout) == (feed.objective, feed.layout):
        return feed  # with what it has counted
    if begins and isinstance(packed, MixedRows):
        packed = packed.begun(begins)
    return replace(feed, packed=packed, objective=recipe.objective, layout=recipe.layout)


class Stages(Hook):
    """Changes a training where a segment begins; without any it does nothing.

    Args:
        setup: the run.
        write: writes a record to the run's log.

    Attributes:
        batches: the batches to train on.
    """

    times = 0

    def __init__(self, setup: TrainingSetup, write: Callable[[dict[str, Any], Loop], None]) -> None:
        self._setup, self._write = setup, write
        self._segments = setup.recipe.segments()
        self._steps: dict[int, int] = {}
        self._current = setup.recipe.at(1.0)  # what the loop was built for
        self._stage = self._segments[-1].stage
        self.batches = StagedBatches(setup.feed, self._segments)

    def keep(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Keep to the steps at which segments began in a run that was killed.

        Args:
            records: the log of the run.
        """
        records = (record for record in records if record["kind"] == log.STAGE)
        self._steps = {int(record["segment"]): int(record["step"]) for record in records}

    def now(self, model: Model) -> tuple[Recipe, Model]:
        """Return the recipe of the current segment, and a model with the heads of its stage."""
        if len(self._segments) == 1:
            return self._setup.recipe, model
        return self._current, model.of_stage(self._stage)

    def begin(self, loop: Loop) -> None:
        """Begin or continue the current segment."""
        if len(self._segments) > 1:
            self.batches.begins = loop.state.begins
            self._begin_segments(loop)
            self._change(loop)

    def after_step(self, loop: Loop) -> None:
        """Begin the segments whose step has come."""
        if len(self._segments) > 1 and loop.progress < 1 and self._begin_segments(loop):
            self._change(loop)

    def run(self, loop: Loop) -> None:
        """Do nothing: it is never due."""

    def _begin_segments(self, loop: Loop) -> bool:
        """Note the segments that begin with the next step; return whether there are any."""
        spent, begins = loop.state.spent, loop.state.begins
        before = len(begins)
        progress = loop.budget.progress_of_steps(spent, loop.state.before)
        is_recorded = spent.steps <= max(self._steps.values(), default=-1)
        while len(begins) < len(self._segments):
            number = len(begins)
            # Of several that begin with one step the last is in the log.
            step = next((s for n, s in sorted(self._steps.items()) if n >= number), None)
            share = self._segments[number].begin - TOLERANCE
            if is_recorded if step is None else spent.steps < step:
                break
            if step is None and progress < share:
                break
            begins.append(spent.steps)
        if len(begins) == before:
            return False
        number = len(begins) - 1
        if number not in self._steps:
            self._write(self._record(before - 1, number, spent.steps), loop)
        return True

    def _record(self, old: int, new: int, step: int) -> dict[str, Any]:
        """Return the record of a segment that begins after another: its stage, and what changes."""
        before, segment = self._segments[old], self._segments[new]
        return {
            "kind": log.STAGE,
            "step": step,
            "segment": new,
            "stage": segment.stage + 1,
            "stages": self._segments[-1].stage + 1,
            **differences(config.to_table(before.recipe), config.to_table(segment.recipe)),
        }

    def _change(self, loop: Loop) -> None:
        """Set objective, heads, dropout and weight decay to those of the current segment."""
        setup, number = self._setup, len(loop.state.begins) - 1
        old, new, stage = self._current, self._segments[number].recipe, self._segments[number].stage
        outer: Any = loop.loss_fn
        loss_fn: ModelWithLoss = getattr(outer, "module", outer)  # within DDP's
        loss_fn.uses = (new.objective, setup.model.of_stage(stage))
        if new.model != old.model:
            _set_dropout(setup, old.model, new.model)
        if new.optimizer != old.optimizer:
            _set_decay(loop.optimizer, new.optimizer.build_for(setup.model))
        if (new.objective, new.layout) != (old.objective, old.layout):
            counted = step_flops(setup, self.batches.feed_of(number), loss_fn)
            loop.options = replace(loop.options, flops=counted)
        self._current, self._stage = new, stage


def _set_dropout(setup: TrainingSetup, old: Architecture, new: Architecture) -> None:
    """Set what two models that differ in dropout alone differ in."""
    with shapes_only():
        before, after = (
            replace(setup.recipe, model=model).build(setup.vocab) for model in (old, new)
        )
    modules = zip(setup.model.modules(), before.modules(), after.modules(), strict=True)
    for module, was, becomes in modules:
        for name, value in vars(becomes).items():
            if isinstance(value, float | bool) and vars(was).get(name) != value:
                setattr(module, name, value)


def _set_decay(optimizer: Optimizer, new: Optimizer) -> None:
    """Set the weight decay of each group to that of an optimizer of the same parameters."""
    for group, other in zip(optimizer.param_groups, new.param_groups, strict=True):
        group["weight_decay"] = other["weight_decay"]


def differences(one: Any, other: Any, where: str = "") -> dict[str, Any]:
    """Return the settings of `other` that `one` has not, by name; a kind for all of its own."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        one, other = ({f"[{n}]": item for n, item in enumerate(items)} for items in (one, other))
    if not (isinstance(one, Mapping) and isinstance(other, Mapping)) or is_curve(other):
        return {} if one == other else {where: other}
    if one.get("kind") != other.get("kind"):
        return {where: other.get("kind")}
    found: dict[str, Any] = {}
    for key in other:
        found |= differences(
            one.get(key), other[key], f"{where}.{key}".lstrip(".").replace(".[", "[")
        )
    return found


def describe_stage(recipe: Recipe, number: int) -> str:
    """Return what differs in a stage from the recipe itself; of that, its curves."""
    stages = [config.to_table(stage) for _, stage in recipe.in_stages()]
    if number < len(stages) - 1:
        return log.in_words(differences(stages[-1], stages[number]))
    begin = config.to_table(recipe.at(0.0))
    return log.in_words(differences(begin, stages[-1])) or "the recipe itself"
