"""Parts of speech read from frozen states, and the CoNLL-U files they come from."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foreword.errors import UserError
from foreword.evaluation.prompting import PromptedModel
from foreword.evaluation.states import text_states
from foreword.nn.init import initialise
from foreword.nn.positions.learned import Learned
from foreword.probes._contract import Finding, ProbedModel
from foreword.probes.tagging import Tagging
from foreword.testing.models import tiny_model
from foreword.tuning.conllu import read_conllu

SENTENCE = """\
# text = I don't see the cats, d'accord.
1\tI\ti\tPRON\tPRP\t_\t_\t_\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t_\t_\t_\t_
3\tn't\tnot\tPART\tRB\t_\t_\t_\t_\t_
3.1\tdo\tdo\tVERB\tVB\t_\t_\t_\t_\t_
4\tsee\tsee\tVERB\tVB\t_\t_\t_\t_\t_
5-6\tdu\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
5\tde\tde\tADP\tIN\t_\t_\t_\t_\t_
6\tle\tle\tDET\tDT\t_\t_\t_\t_\t_
7\t,\t,\tPUNCT\t,\t_\t_\t_\t_\tFoo=Bar|SpaceAfter=No
8\t_\t_\t_\t_\t_\t_\t_\t_\t_
"""


def conllu(*sentences: str) -> str:
    """Return sentences of "word/TAG word/TAG" as CoNLL-U."""
    blocks = []
    for sentence in sentences:
        pairs = [word.split("/") for word in sentence.split()]
        lines = [f"{n}\t{w}\t_\t{t}" + "\t_" * 6 + "\n" for n, (w, t) in enumerate(pairs, 1)]
        blocks.append("".join(lines) + "\n")
    return "".join(blocks)


def write(file: Path, text: str) -> Path:
    file.write_text(text, encoding="utf-8")
    return file


def test_ranges_spell_their_words_and_empty_nodes_are_skipped(tmp_path: Path) -> None:
    (sentence,) = read_conllu(write(tmp_path / "a.conllu", SENTENCE), "upos")
    assert sentence.text == "I don't see de le,_"
    assert sentence.words == ["I", "do", "n't", "see", "de", "le", ",", "_"]
    tags = ("PRON", "AUX", "PART", "VERB", "ADP", "DET", "PUNCT", None)
    assert sentence.tags == tags
    assert read_conllu(tmp_path / "a.conllu", "xpos")[0].tags[1:3] == ("VBP", "RB")


def test_compressed_files_with_windows_line_ends_are_read(tmp_path: Path) -> None:
    file = tmp_path / "a.conllu.gz"
    text = conllu("a/X b/Y", "c/Z").replace("\n", "\r\n")
    file.write_bytes(gzip.compress(text.encode("utf-8-sig")))
    assert [sentence.text for sentence in read_conllu(file, "upos")] == ["a b", "c"]


WORD = "\t_\t_\t_\t_\t_\t_\t_\t_\t_\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.conllu: no sentence in it"),
        ("# only a comment\n\n", "a.conllu: no sentence in it"),
        ("1\ta b c\n", "a.conllu:1: expected 10 columns separated by tabs, got 2"),
        (f"one{WORD}", "a.conllu:1: expected the number of a word, got 'one'"),
        (f"2{WORD}", "a.conllu:1: expected word 1, got 2"),
        (f"1{WORD}\n1{WORD}1{WORD}", "a.conllu:4: expected word 2, got 1"),
        (f"2-1{WORD}", "a.conllu:1: expected word 1, got 2-1"),
        (f"1-3{WORD}1{WORD}2{WORD}", "a.conllu:4: the sentence ends within a range"),
        (f"1{WORD}", r"a.conllu: no word has a tag in column 4 \(upos\)"),
        ("1\t \t_\tX\t_\t_\t_\t_\t_\t_\n", "a.conllu:1: word 1 has no form"),
    ],
)
def test_broken_files_are_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        read_conllu(write(tmp_path / "a.conllu", text), "upos")
    assert "\n" not in str(error.value)


TRAIN = ["the/DET old/ADJ man/NOUN", "the/DET old/NOUN", "a/DET old/ADJ ship/NOUN"] * 4
DEV = ["the/DET old/ADJ man/NOUN", "the/DET old/NOUN", "sail/VERB"]


def measure(tmp_path: Path, family: str = "decoder", **settings: Any) -> Finding:
    train = write(tmp_path / "train.conllu", conllu(*TRAIN))
    dev = write(tmp_path / "dev.conllu", conllu(*DEV))
    texts = ["the old man a ship sail and unbelievably more words " * 3]
    trained = PromptedModel.of(tiny_model(family, texts))
    probe = Tagging(str(train), str(dev), **settings)
    return probe.measure([ProbedModel("m", trained)])


def test_the_baseline_is_the_most_frequent_tag_of_each_word(tmp_path: Path) -> None:
    # Right: the, old, man, the. Wrong: old as a noun; sail, which is unseen and no noun or article.
    row = measure(tmp_path).rows[0]
    assert row["baseline"] == pytest.approx(4 / 6) and row["words"] == 6


def test_context_tells_what_an_embedding_cannot(tmp_path: Path) -> None:
    # "old" before a noun and "old" at the end.
    by_layer = {row["layer"]: row for row in measure(tmp_path, "encoder").details}
    assert by_layer["alone"]["accuracy"] == pytest.approx(4 / 6)
    assert by_layer["2"]["accuracy"] >= 5 / 6
    assert list(by_layer) == ["alone", "0", "1", "2"]


def test_a_given_layer_is_the_one_measured(tmp_path: Path) -> None:
    every = {row["layer"]: row["accuracy"] for row in measure(tmp_path).details}
    one = measure(tmp_path, layer=1)
    assert [row["layer"] for row in one.details] == ["1"]
    assert one.rows[0]["accuracy"] == one.scores["m"] == every["1"]
    with pytest.raises(UserError, match="no layer 3: it has layers 0 to 2"):
        measure(tmp_path, layer=3)


def test_too_few_sentences_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="too few tagged sentences"):
        measure(tmp_path, limit=1)


def test_a_command_without_files_is_refused(
    make_run: Callable[[str], Path], refused: Callable[..., str], tmp_path: Path
) -> None:
    words = ("probe", make_run("decoder"), "--kind", "tagging", "--set", f"train={tmp_path}/no")
    assert "probe.dev: Tagging needs this setting" in refused(*words)
    assert "No such file" in refused(*words, "--set", f"dev={tmp_path}/no")


@pytest.mark.parametrize("family", ["encoder", "decoder", "encoder_decoder", "lstm"])
def test_states_of_a_text_are_those_of_its_tokens_alone_in_a_batch(family: str) -> None:
    texts = ["the old man", "a ship", "the old old man a ship"]
    trained = PromptedModel.of(tiny_model(family, texts))
    together = list(text_states(trained, texts))
    for text, of_text in zip(texts, together, strict=True):
        (alone,) = text_states(trained, [text])
        assert alone.ids.tolist() == trained.tokenizer.encode(text).tolist()
        assert [len(layer) for layer in of_text.layers] == [len(alone.ids)] * 3
        for one, other in zip(of_text.layers, alone.layers, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_text_longer_than_the_positions_is_read_in_parts() -> None:
    words = ["the", "old", "man", "a", "ship"]
    trained = PromptedModel.of(_with_positions(words, 8))
    long = " ".join(words * 3)
    with pytest.raises(UserError, match="8 positions"):
        list(text_states(trained, [long]))
    (states,) = text_states(trained, [long], splits=True)
    assert [len(layer) for layer in states.layers] == [15] * 3
    (first,) = text_states(trained, [" ".join((words * 3)[:6])])  # between [CLS] and [SEP]
    np.testing.assert_allclose(states.layers[2][:6], first.layers[2], atol=1e-5)


def _with_positions(texts: list[str], length: int) -> Any:
    """Return a tiny encoder with this many learned positions."""
    trained = tiny_model("encoder", texts)
    recipe = replace(
        trained.recipe,
        model=replace(trained.recipe.model, position=Learned(length=length)),
        packing=replace(trained.recipe.packing, length=length),
    )
    model = recipe.build(trained.vocab)
    initialise(model, 1)
    return replace(trained, recipe=recipe, model=model.eval())
