"""The speed of training, timed on a few steps of a recipe before there is any text."""

from __future__ import annotations

import time

import numpy as np

from foreword.runs.dry_run import dummy_example, dummy_vocab
from foreword.runs.recipe import Recipe
from foreword.runs.setup import build_model, compile_blocks, resolved
from foreword.train.device import choose_device, choose_precision, wait
from foreword.train.feed import counted
from foreword.train.step import StepOptions, train_step
from foreword.train.workers import accumulate_on

WARM_STEPS, LEAST_STEPS, MOST_STEPS = 1, 4, 30
SECONDS, STEP_SECONDS = 3.0, 2.0  # of steps; of one at most, so that all take ten at most


def tokens_per_second(recipe: Recipe) -> tuple[float, float] | None:
    """Return the tokens of rows that training reads in a second, and their relative error.

    Steps are taken on made-up rows; the error is half of the range that half of them lie in. None
    if a step takes too long, on a slow or busy machine.

    Raises:
        UserError: there is no such device.
    """
    recipe = resolved(recipe)
    train, vocab = recipe.train, dummy_vocab(recipe.tokenizer)
    device = choose_device(train.device, "train.device")
    whole = build_model(recipe, vocab, device)
    left, batches = recipe.rows_per_step, []
    each = max(1, train.micro_batch // max(1, train.threads))
    while left > 0:
        example = dummy_example(recipe, vocab, min(each, left))
        batches.append(recipe.layout.arrange(example, vocab))
        left -= each
    batches = counted(recipe.objective, batches)
    optimizer = recipe.optimizer.build(whole.model)
    if train.compile == "on":
        compile_blocks(whole.model)
    options = StepOptions(
        train.clip,
        choose_precision(train.precision, device),
        accumulate=accumulate_on(train.threads),
    )

    times: list[float] = []
    while len(times) < LEAST_STEPS or (sum(times) < SECONDS and len(times) < MOST_STEPS):
        start = time.perf_counter()
        train_step(whole.model, optimizer, batches, whole, range(len(batches)), options)
        wait(device)
        times.append(time.perf_counter() - start)
        if times[-1] > STEP_SECONDS:
            return None
    timed = times[WARM_STEPS:]
    # Half of the middle half: a step that the machine interrupted says little of a run.
    low, middle, high = np.quantile(timed, (0.25, 0.5, 0.75))
    return recipe.rows_per_step * recipe.packing.length / middle, float((high - low) / 2 / middle)
