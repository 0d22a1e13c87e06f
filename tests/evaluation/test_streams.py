"""Held-out text read as streams by a recurrent model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from foreword.evaluation import heldout
from foreword.nn.masks import CausalMask
from foreword.runs.run_folder import open_run
from foreword.types import Batch
from tests.train import runs


@pytest.fixture
def run(tmp_path: Path) -> Path:
    table = runs.table("transformer_xl", steps=2, evaluations=1)
    table["model"] = {"kind": "lstm", "d_model": 16, "layers": 2, "init_std": 0.5}
    text = runs.write_text(tmp_path / "text")
    return runs.whole(runs.build(table), text, tmp_path / "run")


def test_one_stream_has_the_loss_of_one_long_row(run: Path, tmp_path: Path) -> None:
    prompted = open_run(run, "cpu")
    file = runs.write_text(tmp_path / "other", files=1, seed=7) / "0.txt"
    end, length = prompted.vocab.id("</s>"), prompted.recipe.packing.length
    lines = file.read_text().splitlines()
    stream = np.concatenate([[*prompted.tokenizer.encode(line), end] for line in lines])
    assert len(stream) % length, "the last row is not full"
    ids = torch.from_numpy(stream)[None]
    positions = torch.arange(ids.shape[1])[None]
    with torch.inference_mode():
        hidden = prompted.model.backbone(Batch(ids, positions, CausalMask()))
        logits = prompted.model.token_head(hidden.states)[0, :-1]
        expected = float(F.cross_entropy(logits, ids[0, 1:]))
    with heldout.shards_of_texts(prompted, [str(file)]) as shards:
        measured, first, parts = (
            heldout.on_shards(prompted, shards, rows, streams)
            for rows, streams in ((heldout.ALL, 1), (6, 1), (heldout.ALL, 4))
        )
    assert measured.predictions == ids.numel() - 1
    assert measured.loss == pytest.approx(expected, rel=1e-5)
    exact = float(F.cross_entropy(logits[: 6 * length], ids[0, 1 : 6 * length + 1]))
    assert (first.loss, first.predictions) == (pytest.approx(exact, rel=1e-5), 6 * length)
    assert parts.loss != measured.loss, "three more streams begin without context"
