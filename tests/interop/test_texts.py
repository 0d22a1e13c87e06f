"""An exported folder gives a text the same tokens and states as Foreword does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import foreword
from foreword.interop import exporting as exporting
from foreword.interop import importing, tokens
from foreword.runs.recipe import load_recipe
from foreword.runs.run_folder import open_run
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers.bpe import BPE
from foreword.text.tokenizers.char import Char
from foreword.text.tokenizers.unigram import Unigram
from foreword.text.tokenizers.word import Word
from foreword.text.tokenizers.wordpiece import WordPiece
from tests.evaluation.conftest import TEXTS, write_run

from . import theirs

transformers = pytest.importorskip("transformers")

KINDS = {
    "bpe": BPE(vocab=380),
    "char": Char(),
    "unigram": Unigram(vocab=140),
    "word": Word(min_count=1),
    "wordpiece": WordPiece(vocab=180),
}
FAMILIES = {
    "albert": "unigram",
    "bert": "wordpiece",
    "bigbird": "bpe",
    "electra": "char",
    "gpt1": "word",
    "gpt2": "bpe",
    "longformer": "bpe",
    "modernbert": "bpe",
    "roberta": "wordpiece",
    "spanbert": "word",
    "t5": "unigram",
    "xlnet": "unigram",
}
PLAIN = ["The cat sat.", "a bird", ""]
NAMED = [
    "The [MASK] sat on <s> the </s> mat[UNK] <extra_id_3>.",
    "[CLS]cat[SEP] [MASK]",
    "a dog</s>",
]
PADDED = ["The [PAD] cat sat", "[PAD]"]  # which RoBERTa and Longformer take for padding


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {name: kind.train(TEXTS * 4) for name, kind in KINDS.items()}


@pytest.mark.product(only=("bert", "gpt2", "t5"))
@pytest.mark.parametrize("name", FAMILIES)
def test_an_exported_tokenizer_encodes_as_the_original(
    name: str, tokenizers: dict[str, Tokenizer], tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", load_recipe(f"{name}_tiny"), tokenizers[FAMILIES[name]])
    plain, _ = exporting.without_boundary_head(open_run(run, "cpu"))
    family = exporting.export(plain, tmp_path / "hf").family
    loaded = foreword.load(run, "cpu")
    framed, encode = loaded.trained.with_special_tokens, loaded.tokenizer.encode
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    model = transformers.AutoModel.from_pretrained(tmp_path / "hf").eval()
    reader = model.encoder if name == "t5" else model

    def states(text: str, **how: Any) -> torch.Tensor:
        with torch.no_grad():
            actual = reader(**tokenizer(text, return_tensors="pt", **how))
        return actual.last_hidden_state[0]  # type: ignore[no-any-return]

    counts_places = name in ("roberta", "longformer")
    for text in [*PLAIN, *NAMED, *PADDED]:
        as_text = tokenizer(text, split_special_tokens=True)["input_ids"]
        assert as_text == framed(encode(text)).tolist()
        assert tokenizer(text)["input_ids"] == framed(encode(text, special=True)).tolist()
        if counts_places and text in PADDED:
            continue
        ours = torch.from_numpy(loaded.encode(text))
        torch.testing.assert_close(states(text), ours, atol=1e-4, rtol=1e-4)
    message = "reads the name of the padding token within a text as padding"
    assert any(message in note for note in family.differences(plain.recipe).notes) == counts_places


def test_other_special_tokens_around_a_text_are_noted(tmp_path: Path) -> None:
    theirs.write("bert", tmp_path)
    imported = importing.read(tmp_path)
    (note,) = importing.reading_notes(imported)  # its tokenizer puts nothing around a text
    assert note.startswith("transformers reads a text as text, Foreword, as its family was trained")
    assert note.endswith("as [CLS] text [SEP]")
    importing.save(imported, tmp_path / "run")
    exporting.export(open_run(tmp_path / "run", "cpu"), tmp_path / "again")
    again = importing.read(tmp_path / "again")
    assert importing.reading_notes(again) == ()
    assert tokens.compare(again.tokenizer, tmp_path / "again") == tokens.TokenizerComparison(
        (), (2,), (3,)
    )


def test_another_tokenizer_is_found(tokenizers: dict[str, Tokenizer], tmp_path: Path) -> None:
    tokenizers["wordpiece"].save(tmp_path)
    assert tokens.compare(tokenizers["wordpiece"], tmp_path).differing == ()
    assert tokens.compare(tokenizers["char"], tmp_path).differing
