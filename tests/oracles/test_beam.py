"""Beam search finds what that of `transformers` finds, with equal weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foreword.evaluation import beam
from foreword.evaluation.beam import Beams
from foreword.evaluation.starts import Start
from foreword.runs.recipe import Recipe
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config
from foreword.types import Vocab

from . import weights

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize(("size", "penalty"), [(2, 0.0), (4, 0.0), (4, 1.0), (5, 0.6)])
@torch.no_grad()
def test_beam_search_finds_what_transformers_finds(size: int, penalty: float) -> None:
    theirs = transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=24,
            d_model=32,
            d_kv=8,
            d_ff=48,
            num_layers=2,
            num_heads=4,
            feed_forward_proj="relu",
            tie_word_embeddings=True,
            decoder_start_token_id=0,
            pad_token_id=0,
            eos_token_id=1,
        )
    ).eval()
    weights.randomise(theirs, seed=6)
    table = {
        "model": {
            "kind": "encoder_decoder",
            "d_model": 32,
            "layers": 2,
            "heads": 4,
            "d_ff": 48,
            "activation": "relu",
            "norm": "rms",
            "norm_eps": 1e-6,
            "bias": False,
            "position": "t5_bias",
            "scale_scores": False,
            "scale_logits": True,
        },
        "objective": "translate",
        "layout": "encoder_decoder",
        "packing": {"kind": "parallel", "length": 32},
    }
    recipe = config.build(Recipe, {"description": "as theirs", **table})
    words = Vocab(
        size=24,
        special={"[PAD]": 0, "</s>": 1},
        sentinels=np.empty(0, np.int64),
        is_special=np.arange(24) < 2,
        starts_word=np.ones(24, bool),
    )
    ours = recipe.build(words)
    taken = weights.Theirs(theirs)
    weights.load(ours, weights.t5(taken, 2, is_gated=False, is_tied=True), taken)
    prompted = TrainedModel(ours.eval(), recipe, _Words(words), torch.device("cpu"))  # type: ignore[arg-type]
    sources = np.random.default_rng(1).integers(2, 24, (6, 9))
    starts = [Start(np.append(row, 1), row[:0]) for row in sources]
    expected = theirs.generate(
        torch.from_numpy(np.stack([start.source for start in starts if start.source is not None])),
        num_beams=size,
        length_penalty=penalty,
        early_stopping=True,
        do_sample=False,
        max_new_tokens=8,
        suppress_tokens=[0],
    )
    actual = beam.search(prompted, starts, Beams(size, penalty, tokens=8), np.array([1]))
    for best, row in zip(actual, expected.tolist(), strict=True):
        text = [token for token in row if token > 1]
        assert best[0].ids.tolist() == text


class _Words:
    """A tokenizer of which only the vocabulary is asked."""

    def __init__(self, vocab: Vocab) -> None:
        self.vocab = vocab
