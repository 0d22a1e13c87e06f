"""Exported folders work in the pipelines of `transformers` without our code."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import foreword
from foreword.cli.main import run as command
from foreword.evaluation.sampling import Sampling
from foreword.interop import exporting as exporting
from foreword.runs.recipe import load_recipe
from foreword.runs.run_folder import open_run
from foreword.settings import kinds
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers.bpe import BPE
from foreword.text.tokenizers.unigram import Unigram
from foreword.text.tokenizers.wordpiece import WordPiece
from tests.evaluation.conftest import TEXTS, write_run

transformers = pytest.importorskip("transformers")

MASKED = [
    "objective={kind='masked'}",
    "packing={kind='documents', length=64, bos='[CLS]', eos='[SEP]'}",
]
SMALL = ["model.d_model=32", "model.init_std=0.3", "model.position={kind='learned', length=64}"]


def exported(folder: Path, name: str, kind: object, settings: list[str]) -> tuple[Path, Path]:
    tokenizer = kind.train(TEXTS * 4)  # type: ignore[attr-defined]
    run = write_run(folder / "run", load_recipe(name, settings), tokenizer)
    assert command(["export", str(run), "--format", "hf", "--out", str(folder / "hf")]) == 0
    return run, folder / "hf"


def test_the_fill_mask_pipeline_gives_our_candidates(tmp_path: Path) -> None:
    run, folder = exported(tmp_path, "bert_tiny", WordPiece(vocab=180), [*SMALL, *MASKED])
    fill = transformers.pipeline("fill-mask", model=str(folder), device="cpu")
    theirs = fill("the [MASK] sat on the mat.", top_k=3)
    ours = foreword.load(run, "cpu").fill("the [MASK] sat on the mat.", top=3).blanks[0]
    assert [answer["token"] for answer in theirs] == [candidate.ids[0] for candidate in ours]
    for answer, candidate in zip(theirs, ours, strict=True):
        assert answer["score"] == pytest.approx(candidate.probability, abs=1e-5)


@pytest.mark.full
def test_an_encoder_without_segments_is_exported_as_roberta(tmp_path: Path) -> None:
    """Padding is token 0 here and 1 there, and positions are counted from after it."""
    settings = [*SMALL, *MASKED, "model.segments=0"]
    run, folder = exported(tmp_path, "bert_tiny", WordPiece(vocab=180), settings)
    fill = transformers.pipeline("fill-mask", model=str(folder), device="cpu")
    assert type(fill.model).__name__ == "RobertaForMaskedLM"
    theirs = fill(["the [MASK] sat on the mat.", "a [MASK]"], top_k=3, batch_size=2)
    for text, answers in zip(("the [MASK] sat on the mat.", "a [MASK]"), theirs, strict=True):
        ours = foreword.load(run, "cpu").fill(text, top=3).blanks[0]
        assert [answer["token"] for answer in answers] == [c.ids[0] for c in ours]
    assert command(["import", str(folder), "--out", str(tmp_path / "again")]) == 0


def test_spanbert_is_exported_as_bert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The head that reads spans from their edges serves training alone."""
    settings = [*SMALL, "objective={kind='span_masked'}", MASKED[1]]
    run, folder = exported(tmp_path, "bert_tiny", WordPiece(vocab=180), settings)
    captured = capsys.readouterr()
    assert "BertForMaskedLM" in captured.out
    assert "the span boundary head is not exported" in captured.err
    assert command(["import", str(folder), "--out", str(tmp_path / "again")]) == 0
    again, before = (foreword.load(where, "cpu") for where in (tmp_path / "again", run))
    text = "the [MASK] sat on the mat."
    assert again.fill(text).blanks[0][0].probability == pytest.approx(
        before.fill(text).blanks[0][0].probability, abs=1e-6
    )


FILLED = {
    "albert": ("AlbertForMaskedLM", ["model.d_embedding=16"]),
    "bert": ("BertForMaskedLM", []),
    "bigbird": ("BigBirdForMaskedLM", []),
    "electra": ("ElectraForMaskedLM", ["model.heads=4"]),
    "longformer": ("LongformerForMaskedLM", ["model.attention.radius=4"]),
    "modernbert": ("ModernBertForMaskedLM", ["model.d_ff=48", "model.attention.radius=4"]),
    "roberta": ("RobertaForMaskedLM", []),
    "spanbert": ("BertForMaskedLM", []),
}


@pytest.fixture(scope="module")
def wordpiece() -> Tokenizer:
    return WordPiece(vocab=180).train(TEXTS * 4)


@pytest.mark.product(few=1)
@pytest.mark.parametrize("name", FILLED)
def test_every_recipe_for_blanks_fills_them(
    name: str, wordpiece: Tokenizer, tmp_path: Path
) -> None:
    """With both heads where the recipe has two; in texts longer than a window, and padded."""
    architecture, own = FILLED[name]
    recipe = load_recipe(f"{name}_tiny", [*SMALL[:2], *own])
    run = write_run(tmp_path / "run", recipe, wordpiece)
    plain, _ = exporting.without_boundary_head(open_run(run, "cpu"))
    exporting.export(plain, tmp_path / "hf")
    folder = tmp_path / "hf" / ("generator" if name == "electra" else "")
    fill = transformers.pipeline("fill-mask", model=str(folder), device="cpu")
    assert type(fill.model).__name__ == architecture
    texts = ["a dog sat on the mat. " * 2 + "the [MASK] ran to the mat.", "a [MASK] sat."]
    for text, answers in zip(texts, fill(texts, top_k=3, batch_size=2), strict=True):
        ours = foreword.load(run, "cpu").fill(text, top=3).blanks[0]
        assert [answer["token"] for answer in answers] == [c.ids[0] for c in ours]
        for answer, candidate in zip(answers, ours, strict=True):
            assert answer["score"] == pytest.approx(candidate.probability, abs=1e-5)


def test_the_exported_tokenizer_gives_a_pair_two_segments(tmp_path: Path) -> None:
    run, folder = exported(tmp_path, "bert_tiny", WordPiece(vocab=180), [*SMALL, *MASKED])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    encoded = tokenizer("the cat", "the mat")
    ours = foreword.load(run, "cpu").tokenizer
    cls, sep = ours.vocab.id("[CLS]"), ours.vocab.id("[SEP]")
    first, second = ours.encode("the cat").tolist(), ours.encode("the mat").tolist()
    assert encoded["input_ids"] == [cls, *first, sep, *second, sep]
    assert encoded["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)


@pytest.mark.product(few=1)
@pytest.mark.parametrize("name", ["gpt2_tiny", "modern_decoder_tiny"])
def test_the_text_generation_pipeline_gives_our_text(name: str, tmp_path: Path) -> None:
    settings = SMALL if name == "gpt2_tiny" else ["model.init_std=0.3"]
    run, folder = exported(tmp_path, name, BPE(vocab=380), settings)
    write = transformers.pipeline("text-generation", model=str(folder), device="cpu")
    loaded = foreword.load(run, "cpu")
    ours = loaded.generate("The cat", Sampling(tokens=8, temperature=0.0))
    # Both read first what stands separator texts, as in training; ours writes no special tokens.
    special = np.flatnonzero(loaded.tokenizer.vocab.is_special).tolist()
    generated = write("The cat", max_new_tokens=8, do_sample=False, suppress_tokens=special)
    assert generated[0]["generated_text"].removeprefix("The cat") == ours.removeprefix("The cat")
    assert write("", max_new_tokens=2)  # begins with the token separator texts


def test_the_exported_tokenizer_has_roles_for_scoring(tmp_path: Path) -> None:
    """What lm-eval asks a decoder's tokenizer: an end, and what a text begins with."""
    run, folder = exported(tmp_path, "gpt2_tiny", BPE(vocab=380), SMALL)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    separator = foreword.load(run, "cpu").tokenizer.vocab.id("</s>")
    assert tokenizer.bos_token_id == tokenizer.eos_token_id == separator
    assert config.bos_token_id == config.eos_token_id == separator
    assert tokenizer.pad_token_id == 0
    ids = foreword.load(run, "cpu").tokenizer.encode("The cat").tolist()
    assert tokenizer("The cat")["input_ids"] == [separator, *ids]
    assert "token_type_ids" not in tokenizer("The cat")


def test_transformers_generates_from_an_exported_t5(tmp_path: Path) -> None:
    settings = ["model.d_model=32", "model.d_ff=40"]
    run, folder = exported(tmp_path, "t5_tiny", Unigram(vocab=140), settings)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    actual = tokenizer("The <extra_id_0> sat.", return_tensors="pt")
    ours = foreword.load(run, "cpu").tokenizer
    expected = [*ours.encode("The <extra_id_0> sat.", special=True), ours.vocab.id("</s>")]
    assert actual["input_ids"][0].tolist() == np.array(expected).tolist()
    with torch.no_grad():
        assert model.generate(**actual, max_new_tokens=4).shape[1] > 1


CARRIED = {
    "albert": "albert",
    "bert": "bert",
    "bigbird": "big_bird",
    "electra": "electra",
    "gpt1": "openai_gpt",
    "gpt2": "gpt2",
    "hybrid_decoder": "qwen3_5_text",
    "longformer": "longformer",
    "modern_decoder": "llama",
    "modern_encoder": "modernbert",
    "modernbert": "modernbert",
    "roberta": "roberta",
    "spanbert": "bert",
    "t5": "t5",
    "ul2": "t5",
    "xlnet": "xlnet",
}


@pytest.mark.product(few=3)
@pytest.mark.parametrize("name", CARRIED)
def test_recipes_are_exported_as_their_family(name: str, tmp_path: Path) -> None:
    tokenizer = WordPiece(vocab=180).train(TEXTS * 4)
    run = write_run(tmp_path / "run", load_recipe(f"{name}_tiny"), tokenizer)
    trained, _ = exporting.without_boundary_head(open_run(run, "cpu"))
    assert kinds.name_of(exporting.find_family(trained)) == CARRIED[name]


@pytest.mark.full
def test_show_families_names_the_family_of_the_export(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["show", "families", "--json"]) == 0
    output = {one["family"]: one["hugging_face"] for one in json.loads(capsys.readouterr().out)}
    families = {load_recipe(f"{name}_tiny").family: family for name, family in CARRIED.items()}
    assert families == {name: family for name, family in output.items() if family}


def test_a_model_of_no_family_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = WordPiece(vocab=180).train(TEXTS * 4)
    recipe = load_recipe("modern_encoder_tiny", ["model.d_model=32", "model.position.kind=alibi"])
    run = write_run(tmp_path / "run", recipe, tokenizer)
    assert command(["export", str(run), "--out", str(tmp_path / "hf")]) == 2
    error = capsys.readouterr().err
    assert "no transformers class matches this model; nearest is" in error
    assert "modernbert, but model.position is alibi, not rotary" in error
    assert not (tmp_path / "hf").exists()
