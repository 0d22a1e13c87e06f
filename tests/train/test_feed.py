"""Batches of a run, and what is counted of them."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import numpy as np
import pytest

from foreword.runs.corpus import corpus
from foreword.runs.run_folder import Run
from foreword.runs.setup import set_up_training
from foreword.train.feed import Feed
from foreword.types import Array, Batch, TermCounts
from tests.train import runs


@pytest.mark.product(few=2)
@pytest.mark.parametrize("family", ["ul2", "translator", "span_decoder", "deshuffles"])
def test_padding_is_not_counted_as_tokens(family: str, text: Path, tmp_path: Path) -> None:
    made = runs.recipe(family, batch=8)
    text = runs.text_for(family, text, tmp_path / "text")
    tokenizer, prepared = corpus(Run(runs.begin(made, text, tmp_path / "run")), runs.stage)
    feed = set_up_training(made, tokenizer, prepared).feed
    counts, sizes = [], []
    for micro_batch in (8, 1):
        batches = dataclasses.replace(feed, micro_batch=micro_batch).micro_batches(0)
        counts.append(feed.count_tokens(batches))
        sides = [side for batch in batches for side in (batch, batch.source) if side is not None]
        sizes.append(sum(np.asarray(side.ids).size for side in sides))
    assert counts[0] == counts[1]  # a row alone is padded less than in a batch
    assert counts[0] < sizes[0]


def test_held_out_batches_of_a_sum_are_made_once_after_the_first_evaluation(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = runs.recipe("bert", batch=2, micro_batch=2, threads=1)
    text = runs.text_for("bert", text, tmp_path / "text")
    tokenizer, prepared = corpus(Run(runs.begin(made, text, tmp_path / "run")), runs.stage)
    feed = set_up_training(made, tokenizer, prepared).heldout
    assert feed is not None
    sizes, batch = [], Feed.batch

    def counting(self: Feed, numbers: Array, seed: int) -> Batch:
        sizes.append(len(numbers))
        return batch(self, numbers, seed)

    monkeypatch.setattr(Feed, "batch", counting)
    first = list(feed.heldout(4))
    made_first = len(sizes)
    again = list(feed.heldout(4))
    assert made_first == 2 * len(first)
    assert len(sizes) - made_first == len(again)
    counts = [[b.require(TermCounts).counts.tolist() for b in each] for each in (first, again)]
    assert counts[0] == counts[1]


def test_a_feed_that_is_closed_ends_its_thread_and_one_that_fails_raises(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = runs.recipe()
    tokenizer, prepared = corpus(Run(runs.begin(made, text, tmp_path / "run")), runs.stage)
    feed = set_up_training(made, tokenizer, prepared).feed
    threads = threading.active_count()
    full = feed.ahead(0)
    next(full)  # the thread makes more than there is room for
    full.close()
    assert threading.active_count() == threads
    monkeypatch.setattr(Feed, "micro_batches", lambda self, step: [1 / (2 - step)])
    failing = feed.ahead(0)
    assert [next(failing), next(failing)] == [[0.5], [1.0]]
    with pytest.raises(ZeroDivisionError):
        next(failing)
    assert threading.active_count() == threads
