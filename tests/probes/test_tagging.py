"""Parts of speech read from frozen states, and the CoNLL-U files they come from."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from foreword.errors import UserError
from foreword.evaluation.states import text_states
from foreword.nn.init import initialise
from foreword.nn.positions.learned import Learned
from foreword.probes._contract import Finding, ProbedModel
from foreword.probes._word_tasks import ParsedSentences, control_task, word_task
from foreword.probes.tagging import Tagging
from foreword.tables.conllu import TaggedSentence, read_conllu
from foreword.testing.models import tiny_model

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
    assert sentence.tags == {"upos": tags}
    assert read_conllu(tmp_path / "a.conllu", "xpos")[0].tags["xpos"][1:3] == ("VBP", "RB")


def test_compressed_files_with_windows_line_ends_are_read(tmp_path: Path) -> None:
    file = tmp_path / "a.conllu.gz"
    text = conllu("a/X b/Y", "c/Z").replace("\n", "\r\n")
    file.write_bytes(gzip.compress(text.encode("utf-8-sig")))
    assert [sentence.text for sentence in read_conllu(file, "upos")] == ["a b", "c"]


def with_heads(sentence: str) -> str:
    """Return a sentence of "word/TAG/HEAD word/TAG/HEAD" as CoNLL-U."""
    words = [word.split("/") for word in sentence.split()]
    lines = [f"{n}\t{w}\t_\t{t}\t_\t_\t{h}\t_\t_\t_\n" for n, (w, t, h) in enumerate(words, 1)]
    return "".join(lines) + "\n"


def test_words_have_a_position_a_form_and_a_depth_in_the_tree(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.conllu", with_heads("The/X/3 old/X/3 Man/X/4 sails/X/0 away/X/_ of/X/5")
    )
    (sentence,) = read_conllu(file, "position", "word", "depth")
    assert sentence.tags["position"] == ("1", "2", "3", "4", "5", "6")
    assert sentence.tags["word"] == ("the", "old", "man", "sails", "away", "of")
    assert sentence.tags["depth"] == ("2", "2", "1", "0", None, None)


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        ("a/X/2 b/X/1", "a.conllu:1: the heads of the sentence go round in a circle"),
        ("a/X/0 b/X/3", "a.conllu:1: expected heads from 0 to 2 in column 7"),
        ("a/X/0 b/X/x", "a.conllu:1: expected heads from 0 to 2 in column 7"),
        ("a/X/_ b/X/_", r"a.conllu: no word has a tag in column 7 \(head\)"),
    ],
)
def test_heads_that_are_no_tree_are_refused(tmp_path: Path, sentence: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_conllu(write(tmp_path / "a.conllu", with_heads(sentence)), "depth")


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


def measure(
    tmp_path: Path,
    family: str = "decoder",
    *,
    sentences: tuple[list[str], list[str]] = (TRAIN, DEV),
    text: str = "",
    **settings: Any,
) -> Finding:
    train = write(tmp_path / "train.conllu", text or conllu(*sentences[0]))
    dev = write(tmp_path / "dev.conllu", text or conllu(*sentences[1]))
    texts = ["the old man a ship sail and unbelievably more words " * 3]
    trained = tiny_model(family, texts)
    probe = Tagging(str(train), str(dev), **settings)
    return probe.measure([ProbedModel("m", trained)])


def test_the_baseline_is_the_most_frequent_tag_of_each_word(tmp_path: Path) -> None:
    # Right: the, old, man, the. Wrong: old as a noun; sail, which is unseen and no noun or article.
    found = measure(tmp_path)
    (row, *_), notes = found.rows, found.notes
    assert row["baseline"] == pytest.approx(4 / 6) and row["words"] == 6
    assert any(note.startswith("interval: 95% of ") for note in notes)


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


def test_the_control_task_gives_each_word_one_tag_in_the_proportions_of_the_real_ones() -> None:
    words = [f"w{n % 500}" for n in range(2000)]
    tags = tuple("A" if n % 500 < 400 else "B" for n in range(2000))
    text = " ".join(words)
    starts = np.cumsum([0, *(len(word) + 1 for word in words[:-1])])
    spans = tuple(zip(starts, starts + [len(word) for word in words], strict=True))
    sentence = TaggedSentence(text, spans, {"upos": tags})
    sentences = ParsedSentences([sentence], [sentence], [sentence])
    real = word_task(sentences, "upos")
    random = control_task(sentences, real)
    of_word = dict(zip(words, random.fit.of_words, strict=True))
    assert [of_word[word] for word in words] == random.dev.of_words.tolist()
    assert (random.fit.of_words == "A").mean() == pytest.approx(0.8, abs=0.05)
    assert 0.6 < (random.fit.of_words == real.fit.of_words).mean() < 0.76  # 0.68 by chance


def test_selectivity_is_the_accuracy_above_that_of_the_control_task(tmp_path: Path) -> None:
    plain, row = measure(tmp_path).details[0], measure(tmp_path, control=True).details[0]
    assert row["accuracy"] == plain["accuracy"] and "control" not in plain
    assert row["selectivity"] == pytest.approx(row["accuracy"] - row["control"])


def test_context_tells_the_position_of_a_word_that_embeddings_do_not(tmp_path: Path) -> None:
    # One word over and over: only a state that depends on the position tells where it stands.
    found = measure(tmp_path, "encoder", tag="position", sentences=(["man/X man/X"] * 12,) * 2)
    by_layer = {row["layer"]: row["accuracy"] for row in found.details}
    assert by_layer["alone"] == 0.5 and by_layer["2"] == 1
    assert found.rows[0]["tag"] == "position" and found.rows[0]["baseline"] == 0.5


def test_all_properties_are_read_in_one_run(tmp_path: Path) -> None:
    sentences = [with_heads("the/DET/2 man/NOUN/0"), with_heads("old/ADJ/3 old/ADJ/3 ship/NOUN/0")]
    found = measure(tmp_path, tag="all", text="".join(sentences * 6))
    assert [row["tag"] for row in found.rows] == ["upos", "word", "position", "depth"]
    assert found.scores == {"m": found.rows[0]["accuracy"]}
    figure = Figure(layout="constrained")
    found.plot(figure)
    assert [axes.get_title().split()[0] for axes in figure.axes] == [
        "Part",
        "Which",
        "Position",
        "Depth",
    ]


def test_too_few_sentences_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="too few tagged sentences"):
        measure(tmp_path, limit=1)


def test_a_command_without_files_is_refused(
    make_run: Callable[[str], Path], refused: Callable[..., str], tmp_path: Path
) -> None:
    words = ("probe", make_run("decoder"), "tagging", "--set", f"train={tmp_path}/no")
    assert "tagging: requires --set dev=..." in refused(*words)
    assert "No such file" in refused(*words, "--set", f"dev={tmp_path}/no")


@pytest.mark.parametrize("family", ["encoder", "decoder", "encoder_decoder", "lstm"])
def test_states_of_a_text_are_those_of_its_tokens_alone_in_a_batch(family: str) -> None:
    texts = ["the old man", "a ship", "the old old man a ship"]
    trained = tiny_model(family, texts)
    together = list(text_states(trained, texts))
    for text, of_text in zip(texts, together, strict=True):
        (alone,) = text_states(trained, [text])
        assert alone.ids.tolist() == trained.tokenizer.encode(text).tolist()
        assert [len(layer) for layer in of_text.layers] == [len(alone.ids)] * 3
        for one, other in zip(of_text.layers, alone.layers, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_text_longer_than_the_positions_is_read_in_parts() -> None:
    words = ["the", "old", "man", "a", "ship"]
    trained = _with_positions(words, 8)
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
