"""Models of sentence embeddings as folders that `sentence_transformers` reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foreword import tune
from foreword.tuning.tuned_model import load_tuned

from .test_hf import FAST, LONG, cut, export, tiny_run

transformers = pytest.importorskip("transformers")

PAIRS = [("the cat sat", "a cat on the mat"), ("a dog looked", "the dog"), ("it", "mat")] * 4
TEXTS = ["the cat sat on the mat", "a dog", LONG]
FAMILIES = {
    "bert": "mean",
    "roberta": "first",
    "albert": "mean",
    "electra": "mean",
    "modernbert": "mean",
    "modern_encoder": "mean",
    "xlnet": "mean",
    "gpt2": "last",
    "gpt1": "mean",
    "modern_decoder": "mean",
    "t5": "mean",
}
MODES = {"mean": "mean_tokens", "first": "cls_token", "last": "lasttoken"}


def exported(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Any, Path]:
    run = tiny_run(tmp_path / "run", name)
    settings = {"task.pooling": FAMILIES[name]}
    tuned = tune(run, PAIRS, PAIRS, task="embed", settings=settings, **FAST).out
    facts = export(tuned, tmp_path / "hf", capsys)
    assert facts["logit_difference"] < 1e-4 * max(1, facts["greatest_logit"])
    return load_tuned(tuned, "cpu"), tmp_path / "hf"


def pooled(states: torch.Tensor, mask: torch.Tensor, config: dict[str, Any]) -> torch.Tensor:
    """The vectors of a batch, as the settings of the pooling say."""
    if config["pooling_mode_cls_token"]:
        return states[:, 0]
    if config["pooling_mode_lasttoken"]:
        return states[torch.arange(len(states)), mask.sum(1) - 1]
    assert config["pooling_mode_mean_tokens"]
    return (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


@pytest.mark.product(only=("bert",))
@pytest.mark.parametrize("name", FAMILIES)
def test_the_folder_gives_our_vectors_by_its_own_settings(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, folder = exported(name, tmp_path, capsys)
    modules = json.loads((folder / "modules.json").read_text())
    assert [(one["idx"], one["path"]) for one in modules] == [(0, ""), (1, "1_Pooling")]
    config = json.loads((folder / "1_Pooling" / "config.json").read_text())
    is_true = [key for key, value in config.items() if value is True and "mode" in key]
    assert is_true == [f"pooling_mode_{MODES[FAMILIES[name]]}"]
    limit = json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"]
    # What sentence_transformers does, by hand: several texts at once, padded.
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    kind = transformers.T5EncoderModel if name == "t5" else transformers.AutoModel
    theirs = kind.from_pretrained(folder).eval()
    batch = tokenizer(TEXTS, padding=True, truncation=True, max_length=limit, return_tensors="pt")
    with torch.no_grad():
        states = theirs(**batch).last_hidden_state
    vectors = pooled(states, batch["attention_mask"], config)
    assert vectors.shape[1] == config["word_embedding_dimension"]
    np.testing.assert_allclose(vectors.numpy(), cut(model).outputs(TEXTS), rtol=1e-3, atol=1e-4)


@pytest.mark.product(only=("gpt2", "t5"))
@pytest.mark.parametrize("name", FAMILIES)
def test_sentence_transformers_gives_our_vectors(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    st = pytest.importorskip("sentence_transformers")
    model, folder = exported(name, tmp_path, capsys)
    theirs = st.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    assert theirs.similarity_fn_name == "cosine"
    np.testing.assert_allclose(
        theirs.encode(TEXTS), cut(model).outputs(TEXTS), rtol=1e-3, atol=1e-4
    )
