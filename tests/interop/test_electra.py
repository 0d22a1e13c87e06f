"""ELECTRA's two parts, which are two models elsewhere and one here."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from foreword.cli.main import run as command
from foreword.nn.masks import Full
from foreword.text.tokenizers.wordpiece import Wordpiece
from foreword.train import checkpoint
from foreword.train.opened import open_run
from foreword.train.recipe import load_recipe
from foreword.types import Batch
from tests.evaluate.conftest import TEXTS, write_run

transformers = pytest.importorskip("transformers")


def test_both_parts_both_ways(tmp_path: Path) -> None:
    tokenizer = Wordpiece(vocab=180).train(TEXTS * 4)
    settings = ["model.d_model=32", "model.heads=4", "model.init_std=0.3"]
    run = write_run(tmp_path / "run", load_recipe("electra_tiny", settings), tokenizer)
    folder, again = tmp_path / "hf", tmp_path / "again"
    assert command(["export", str(run), "--out", str(folder)]) == 0
    assert command(["import", str(folder), "--out", str(again)]) == 0
    for file in ("recipe.toml", "checkpoints/{}/weights.safetensors"):
        before, after = (
            (place / file.format(checkpoint.name_of(step))).read_bytes()
            for place, step in ((run, 1), (again, 0))
        )
        assert before == after

    model = open_run(run, "cpu").model
    ids = torch.arange(108, 132)[None]
    batch = Batch(ids, torch.arange(24)[None], Full())
    judge = transformers.ElectraForPreTraining.from_pretrained(folder).eval()
    writer = transformers.ElectraForMaskedLM.from_pretrained(folder / "generator").eval()
    with torch.no_grad():
        judged = model.heads["replaced"](model.backbone(batch).states).squeeze(-1)
        torch.testing.assert_close(judged, judge(ids).logits, atol=1e-4, rtol=1e-4)
        written = model.token_head(model.heads["generator"](batch).states)
        torch.testing.assert_close(written, writer(ids).logits, atol=1e-4, rtol=1e-4)
