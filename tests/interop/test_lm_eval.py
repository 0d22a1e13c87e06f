"""Exported models get the same scores from lm-eval as from Foreword, if it is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

import foreword
from foreword.text.tokenizers.bpe import BPE

from .test_pipelines import SMALL, exported

pytest.importorskip("transformers")
pytest.importorskip("lm_eval")

TEXTS = ["The cat sat on the mat, and the dog on the cat.", "A dog."]


def test_lm_eval_scores_an_exported_text_as_foreword(tmp_path: Path) -> None:
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    run, folder = exported(tmp_path, "gpt2_tiny", BPE(vocab=380), SMALL)
    theirs = HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=2)
    asked = [Instance("loglikelihood_rolling", {}, (text,), n) for n, text in enumerate(TEXTS)]
    actual = theirs.loglikelihood_rolling(asked)
    ours = foreword.load(run, "cpu")
    for text, logarithm in zip(TEXTS, actual, strict=True):
        own = ours.score(text)
        assert own.totals.ends == 1, "the end, which theirs leaves out"
        assert -logarithm == pytest.approx(-own.log_probs[:-1].sum(), rel=1e-5)
