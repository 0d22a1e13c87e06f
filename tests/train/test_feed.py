"""Batches of a run, and what is counted of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from foreword.runs.corpus import corpus
from foreword.runs.setup import set_up_training
from tests.train import runs


@pytest.mark.parametrize("family", ["ul2", "translator", "span_decoder", "deshuffles"])
def test_padding_is_not_counted_as_tokens(family: str, text: Path, tmp_path: Path) -> None:
    made = runs.recipe(family, batch=8)
    text = runs.text_for(family, text, tmp_path / "text")
    tokenizer, prepared = corpus(made, runs.begin(made, text, tmp_path / "run"), runs.stage)
    feed = set_up_training(made, tokenizer, prepared).feed
    counts, sizes = [], []
    for micro_batch in (8, 1):
        batches = dataclasses.replace(feed, micro_batch=micro_batch).micro_batches(0)
        counts.append(feed.count_tokens(batches))
        sides = [side for batch in batches for side in (batch, batch.source) if side is not None]
        sizes.append(sum(np.asarray(side.ids).size for side in sides))
    assert counts[0] == counts[1]  # a row alone is padded less than in a batch
    assert counts[0] < sizes[0]
