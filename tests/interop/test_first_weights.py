"""Settings of first weights do not decide which class of `transformers` a model is."""

from __future__ import annotations

from pathlib import Path

import pytest

from foreword.cli.main import run as foreword

pytest.importorskip("transformers")


@pytest.mark.full
def test_a_model_whose_blocks_began_as_the_identity_is_exported(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    lines = (f"the cat number {n} sat on mat {n * 7919 % 4001} of house {n}" for n in range(400))
    text.write_text("\n\n".join(lines))
    run, out = tmp_path / "run", tmp_path / "hf"
    words = ["pretrain", "modern_encoder_tiny", "--data", str(text), "--out", str(run)]
    words += ["--steps", "1", "--documents", "paragraph", "--quiet"]
    for setting in ("model.zero_init_residual=true", "model.init_std=0.07", "tokenizer.vocab=400"):
        words += ["--set", setting]
    assert foreword(words) == 0
    assert foreword(["export", str(run), "--format", "hf", "--out", str(out)]) == 0
    assert (out / "config.json").is_file()
