from __future__ import annotations

import pytest

from foreword.cli.main import run
from foreword.settings import kinds
from tests.cli.conftest import Refused, Told

TEXT = ["the lowest road, the newest house and the widest [mask] of all"] * 3


@pytest.fixture
def folder(tmp_path):
    kinds.load("text/tokenizers", "word")().train(TEXT).save(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


def test_trace_shows_the_textbook_example(told: Told) -> None:
    output = told("tokenizer", "trace", "low:5", "lower:2", "newest:6", "widest:3")
    assert [step["symbol"] for step in output["merges"]] == (
        ["es", "est", "lo", "low", "ne", "new", "newest", "wi", "wid", "widest"]
    )
    assert output["segmented"] == {"lowest": ["low", "est"]}
    assert told("tokenizer", "trace") == output
    assert told("tokenizer", "trace", "low:5 lower:2 newest:6", "widest:3") == output  # in quotes


def test_trace_prints_merges_and_segments(capsys) -> None:
    assert run(["tokenizer", "trace", "aab:3", "[b]", "--segment", "ab", "--merges", "1"]) == 0
    output = capsys.readouterr().out
    assert "a a" in output
    assert "[·b·]" in output
    assert output.splitlines()[-1].split("  ") == ["ab", "a b"]


@pytest.mark.parametrize("word", ["low:", ":3", "low:x", "low:0", "low:-1"])
def test_trace_refuses_words_without_a_count(refused: Refused, word: str) -> None:
    assert f"'{word}': expected WORD:COUNT" in refused("tokenizer", "trace", word)


def test_show_describes_a_tokenizer_as_json(told: Told, folder) -> None:
    output = told("tokenizer", "show", str(folder), "--text", "the [MASK] road zebra")
    assert output["kind"] == "word"
    assert output["special"]["[MASK]"] == 4
    assert output["sentinels"] == 100
    assert output["tokens"] == ["the", "[MASK]", "road", "[UNK]"]
    assert output["bytes_per_token"] == len("the [MASK] road zebra") / 4
    assert output["sample"]["documents_kept"] == 3
    assert "lowest" in output["pieces"]


def test_show_prints_tokens_and_sample(capsys, folder) -> None:
    assert run(["tokenizer", "show", str(folder), "--text", "the [mask] road"]) == 0
    output = capsys.readouterr().out
    assert "the [ mask ] road" in " ".join(output.split())
    assert "3 of 3 documents" in output


def test_show_refuses_a_folder_without_a_tokenizer(refused: Refused, tmp_path) -> None:
    assert "there is no tokenizer.json" in refused("tokenizer", "show", str(tmp_path))


def test_train_writes_a_tokenizer_and_refuses_bad_text(
    capsys, told: Told, refused: Refused, tmp_path
) -> None:
    (tmp_path / "text.txt").write_text("\n".join(TEXT), encoding="utf-8")
    out = tmp_path / "out"
    words = ["train", str(tmp_path / "text.txt"), "--out", str(out)]
    output = told("tokenizer", *words, "--kind", "char", "--set", "tokenizer.vocab=112")
    assert (output["kind"], output["vocab"], output["folder"]) == ("char", 112, str(out))
    assert (out / "tokenizer.json").is_file()
    (tmp_path / "text.txt").write_bytes(b"caf\xe9 au lait\n\nand the road\n" * 3)
    assert "--errors replace" in refused("tokenizer", *words, "--kind", "char")
    more = ["--kind", "char", "--errors", "replace", "--documents", "line"]
    output = told("tokenizer", *words, *more)
    assert (output["read"]["replaced_bytes"], output["read"]["empty_documents"]) == (3, 3)
    assert output["sample"]["documents_seen"] == 6
    assert run(["tokenizer", *words, *more]) == 0
    assert "bytes replaced 3" in " ".join(capsys.readouterr().out.split())
    assert run(["tokenizer", *words, "--errors", "replace"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "a vocabulary of 30,522 requested, the text has" in shown
    assert "did you mean 'wordpiece'" in refused("tokenizer", *words, "--kind", "wordpeice")
    assert "only tokenizer.*" in refused("tokenizer", *words, "--set", "model.layers=3")
