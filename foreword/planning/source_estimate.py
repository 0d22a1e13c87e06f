"""What training reads of each source of a mixture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foreword.data.mixed_rows import MixedRows
from foreword.data.mixture import WORTH_IT, effective_epochs
from foreword.data.prepared_text import PreparedText
from foreword.runs.recipe import Recipe
from foreword.runs.setup import TrainingSetup
from foreword.runs.sources import plan_of


@dataclass(frozen=True)
class SourceEstimate:
    """What training reads of a source.

    Attributes:
        name: the name of the source.
        tokens: its training tokens, estimated if it is long.
        share: the share of the rows of training.
        stage: the stages of training that read it; "" for all.
        epochs: how many times it is read.
        worth: how many epochs of new text that is worth.
        effective_tokens: the number of new tokens that those read are worth.
        worth_it: epochs up to which repeated tokens are worth nearly as much as new ones.
    """

    name: str
    tokens: int
    share: float
    stage: str
    epochs: float
    worth: float
    effective_tokens: int
    worth_it: float


def estimate_sources(
    recipe: Recipe,
    setup: TrainingSetup,
    prepared: PreparedText,
    sampled: Mapping[str, float],
    steps: int,
) -> list[SourceEstimate]:
    """Return what training reads of each source; nothing without a mixture.

    Args:
        recipe: the recipe of the run, with its limits of epochs.
        setup: the set-up on the sample.
        prepared: the shards of the sample.
        sampled: share of each source that the sample is.
        steps: estimated steps of training.

    Raises:
        UserError: no source is left to read before training ends.
    """
    if not isinstance(setup.feed.packed, MixedRows):
        return []
    names = [source.name for source in recipe.data.sources]
    tokens = [prepared.sources[name].train.tokens_total / sampled[name] for name in names]
    per_epoch = [
        rows / sampled[name]
        for name, rows in zip(names, setup.feed.packed.source_rows_per_epoch, strict=True)
    ]
    plan = plan_of(recipe, tokens, per_epoch)
    rows = plan.rows_read(steps * recipe.rows_per_step)
    return [
        SourceEstimate(
            source.name,
            round(size),
            float(read / rows.sum()),
            _read_in(recipe, n),
            float(read / each),
            effective_epochs(read / each),
            round(size * effective_epochs(read / each)),
            WORTH_IT,
        )
        for n, (source, size, each, read) in enumerate(
            zip(recipe.data.sources, tokens, per_epoch, rows, strict=True)
        )
    ]


def _read_in(recipe: Recipe, source: int) -> str:
    """Return the numbers of the stages that read a source; "" for all."""
    weights = [
        [r.data.sources[source].weight for r in _ends(stage)] for _, stage in recipe.in_stages()
    ]
    stages = [str(n) for n, ends in enumerate(weights, 1) if any(w != 0 for w in ends)]
    return "" if len(stages) == len(weights) else ", ".join(stages)


def _ends(recipe: Recipe) -> list[Recipe]:
    return [recipe.at(0.0), recipe.at(1.0)]
