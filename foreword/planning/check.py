"""The start of a run without its training: its cost, its text and its first batch."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from foreword.data.mixture_plan import TOLERANCE
from foreword.data.prepared_text import PreparedText
from foreword.errors import UserError
from foreword.planning.estimate import Estimate, chance_loss, combined, estimate
from foreword.planning.preview import PreviewRow, preview
from foreword.planning.request import Note, RunRequest
from foreword.planning.source_estimate import SourceEstimate, estimate_sources
from foreword.planning.text_sample import Shares, sampled
from foreword.runs import run as running
from foreword.runs.continued import load_start
from foreword.runs.corpus import corpus, is_prepared, naming_text_in_errors
from foreword.runs.first_embeddings import most_flops
from foreword.runs.run_folder import Run
from foreword.runs.setup import TrainingSetup, set_up_training
from foreword.runs.sizes import MACHINES, count_parameters, least_memory, memory_of
from foreword.runs.staged import describe_stage, feed_of
from foreword.runs.stages import Stage
from foreword.train.device import choose_device, describe

SAMPLE_BYTES = 20_000_000  # of text: enough for a tokenizer and a batch, and read in seconds


@dataclass(frozen=True)
class CheckedStage:
    """A stage of training.

    Attributes:
        share: its share of the budget.
        begin: the step at which it begins, about so unless the budget is in steps.
        changes: what differs in it from the recipe, in words.
        estimate: its cost, as if all of training were like it.
        rows: some rows of its first batch.
    """

    share: float
    begin: int
    changes: str
    estimate: Estimate
    rows: list[PreviewRow]

    def figures(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "share": self.share,
            "begin": self.begin,
            "changes": self.changes,
            "tokens_per_step": self.estimate.tokens_per_step,
            "flops_per_step": self.estimate.flops_per_step,
            "seconds_per_step": self.estimate.seconds_per_step,
            "batch": [asdict(row) for row in self.rows],
        }


@dataclass(frozen=True)
class CheckedRun:
    """The result of a check.

    Attributes:
        setup: the set-up that training would have.
        estimate: the cost of the run.
        rows: some rows of the first batch.
        data: counts of the text.
        sources: what is read of each source of a mixture.
        stages: those of a recipe that changes; none of another.
    """

    setup: TrainingSetup
    estimate: Estimate
    rows: list[PreviewRow]
    data: dict[str, Any]
    sources: list[SourceEstimate]
    stages: list[CheckedStage]

    def figures(self) -> dict[str, Any]:
        """Return the result as plain values."""
        estimate, train = self.estimate, self.setup.recipe.train
        return {
            "parameters": {**estimate.parameters, "total": sum(estimate.parameters.values())},
            "memory_bytes": {**asdict(estimate.memory), "total": estimate.memory.total},
            "flops": {
                "per_step": estimate.flops_per_step,
                "total": estimate.flops_per_step * estimate.steps,
                "first_embeddings": most_flops(self.setup.recipe, self.setup.vocab),
            },
            "seconds": {
                "per_step": estimate.seconds_per_step,
                "total": estimate.seconds_per_step * estimate.steps,
                "rows_timed": estimate.rows_timed,
            },
            "steps": estimate.steps,
            "tokens_per_step": estimate.tokens_per_step,
            "epochs": estimate.epochs,
            "first_loss": estimate.first_loss,
            "chance_loss": chance_loss(
                self.setup.recipe.in_stages()[0][1].objective, self.setup.vocab.size
            ),
            "micro_batch": train.micro_batch,
            "precision": train.precision,
            "computed_on": describe(self.setup.device),
            "data": self.data,
            **({"sources": [asdict(source) for source in self.sources]} if self.sources else {}),
            "batch": [asdict(row) for row in self.rows],
            **({"stages": [stage.figures() for stage in self.stages]} if self.stages else {}),
        }


def sizes_of(request: RunRequest) -> dict[str, Any]:
    """Return what is known of a run without text: parameters, memory at least, vocabulary."""
    recipe, vocab = request.recipe, running.known_vocab(request.inputs, request.starting_model)
    parameters, memory = count_parameters(recipe, vocab), least_memory(recipe, vocab)
    available = memory_of(choose_device(recipe.train.device, "train.device"))
    return {
        "parameters": {**parameters, "total": sum(parameters.values())},
        "memory_bytes": {**memory, "total": sum(memory.values()), "available": available},
        "vocab": recipe.tokenizer.vocab if vocab is None else vocab.size,
    }


def check_run(
    request: RunRequest, folder: Path, stage: Stage, preview_size: tuple[int, int], note: Note
) -> CheckedRun:
    """Start a run in a temporary folder on the beginning of its text, and take a few steps.

    Args:
        request: the run.
        folder: the temporary folder.
        stage: receives the stages.
        preview_size: the rows to show, and tokens of each.
        note: receives messages for the user.

    Raises:
        UserError: the run cannot begin.
    """
    # Replace a large text by its beginning.
    request = request.continued(note)
    full, texts = request.recipe, request.inputs.texts
    running.require_possible(full, request.inputs, request.starting_model, MACHINES)
    if full.data.sources or not is_prepared(texts):
        stage("sampling the text")
    sample = sampled(request, folder, SAMPLE_BYTES)

    # Start the run as `pretrain` would, up to its set-up.
    run = folder / "run"
    try:
        with naming_text_in_errors(run, texts):
            request = sample.request.extended(note)
            running.start(request.recipe, request.inputs, run, request.starting_model, MACHINES)
            tokenizer, prepared = corpus(Run(run), stage)
            setup = set_up_training(request.recipe, tokenizer, prepared, or_shape=True)
    except UserError as error:
        part = f"the first {SAMPLE_BYTES / 1e6:.0f} MB of the text: "
        part = part if min(sample.shares) < 1 else ""
        raise UserError(part + str(error).replace(f"{run}/", "")) from error

    # Decode some rows, and measure a few steps.
    if next(setup.model.parameters()).is_meta:
        stage("too large for this machine: no steps are taken")
    else:
        load_start(run, setup.model)
        stage("taking a few steps")
    shares = sample.shares_of(prepared)
    data = _data(setup, prepared, shares, sample.counts)
    stages = _check_stages(setup, shares[0], preview_size)
    cost = combined([(stage.share, stage.estimate) for stage in stages], setup)
    full = replace(full, train=setup.recipe.train)
    sources = estimate_sources(full, setup, prepared, sample.of_sources, cost.steps)
    shown = stages if setup.recipe.changes else []
    return CheckedRun(setup, cost, stages[0].rows, data, sources, shown)


def _check_stages(
    setup: TrainingSetup, share: float, preview_size: tuple[int, int]
) -> list[CheckedStage]:
    """Measure a few steps of each stage, and decode some rows of its first one."""
    checked, begin = list[CheckedStage](), 0.0
    for number, (of_budget, recipe) in enumerate(setup.recipe.in_stages()):
        first, middle = recipe.at(0.0), recipe.at(0.5)
        model, feed = setup.model.of_stage(number), feed_of(setup.feed, middle)
        of_stage = replace(setup, recipe=middle, model=model, feed=feed)
        cost = estimate(of_stage if setup.recipe.changes else setup, share)
        step = math.ceil(begin - TOLERANCE)
        rows = preview(feed_of(setup.feed, first), setup.tokenizer, *preview_size, step)
        changes = describe_stage(setup.recipe, number)
        checked.append(CheckedStage(of_budget, step, changes, cost, rows))
        begin += of_budget * cost.steps
    return checked


def _data(
    setup: TrainingSetup, prepared: PreparedText, shares: Shares, counts: dict[str, Any] | None
) -> dict[str, Any]:
    """Return counts of the text, extrapolated from the shares read."""
    share, held_share = shares
    train, heldout = prepared.counts["train"], prepared.counts["heldout"]
    read = counts or prepared.manifest["read"]["counts"]
    return {
        **{
            f"{side}{name}": round(getattr(split, name) / part)
            for side, split, part in (("", train, share), ("heldout_", heldout, held_share))
            for name in ("tokens", "documents", "sequences")
        },
        "unknown_tokens": prepared.counts["train"].unknown,
        "not_kept": setup.tokenizer.not_kept(),
        "share_read": share,
        "vocab": setup.vocab.size,
        "rows_per_step": setup.recipe.rows_per_step,
        "row_length": setup.recipe.packing.length,
        "has_pairs": setup.recipe.packing.labels_pairs,
        "counts": read,
        "notes": setup.notes(prepared),
    }
