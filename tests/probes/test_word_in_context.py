from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import mannwhitneyu

from foreword.errors import UserError
from foreword.evaluation.loaded import load
from foreword.evaluation.states import WordInText, vectors
from foreword.probes._contract import ProbedModel
from foreword.probes._words import read_words, shipped_lists
from foreword.probes.word_in_context import RUN_OFFSET, CosinePair, WordInContext, _figures, _plot
from foreword.runs.run_folder import open_run
from foreword.runs.trained_model import TrainedModel
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers.bpe import BPE

from .conftest import FAMILIES, SIZES, sentences

Make = Callable[[str], Path]


def open_prompted(make_run: Make, family: str) -> TrainedModel:
    return open_run(make_run(family), "cpu")


@pytest.mark.parametrize("name", shipped_lists())
def test_shipped_lists_are_well_formed(name: str) -> None:
    words = read_words(name)
    assert len(words) >= {"english": 24, "korean": 12}[name]
    assert len({word.word for word in words}) == len(words)
    texts = [p.text for word in words for sense in word.senses for p in sense]
    assert len(set(texts)) >= len(texts) - 1  # "We record the record" stands for both
    for word in words:
        assert len(word.senses) == 2 and all(len(sense) == 2 for sense in word.senses)
        forms = set()
        for placed in (p for sense in word.senses for p in sense):
            assert placed.word == word.word
            assert placed.text[placed.start - 1] == " "
            forms.add(re.split(r"\s", placed.text[placed.start :])[0])
            assert re.match(r"\w*\s", placed.text[placed.start :]), placed
        assert len(forms) == 1  # a Korean word with its particle
        before = {p.text[: p.start].split()[-1] for sense in word.senses for p in sense}
        if word.word != "record":  # "We record the record": a verb and a noun
            assert len(before) in (1, 4), "the word before it tells the sense"


@pytest.mark.product(few=2)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_word_varies_between_contexts_in_the_layers_but_not_alone(
    family: str, make_run: Make
) -> None:
    prompted = open_prompted(make_run, family)
    result = WordInContext().measure([ProbedModel("x", prompted)])
    layers = [row["layer"] for row in result.rows]
    assert layers == ["alone", *map(str, range(SIZES["layers"] + 1))]
    alone, *_, last = result.rows
    assert alone["same"] == alone["other"] == 1 and alone["AUC"] == 0.5
    assert (alone["apart"], alone["low"], alone["high"]) == (0, None, None)
    assert last["same"] < 0.9999
    assert last["words"] == len(read_words("english"))


def test_states_of_a_word_equal_those_of_encode(make_run: Make) -> None:
    prompted = open_prompted(make_run, "lstm")
    text = "We record the record in a single day."
    (first, second) = vectors(prompted, [WordInText(text, 3, 9), WordInText(text, 14, 20)])
    states = load(make_run("lstm"), "cpu").encode(text)
    assert first is not None and second is not None
    head = len(prompted.prefix)
    np.testing.assert_allclose(first.layers[-1], states[head + 1], atol=1e-6)
    np.testing.assert_allclose(second.layers[-1], states[head + 3], atol=1e-6)
    assert np.array_equal(first.alone, second.alone)


def test_the_vector_of_a_cut_word_is_the_mean_of_its_pieces(make_run: Make) -> None:
    bpe: Tokenizer = BPE(vocab=400).train(sentences())
    kept = open_prompted(make_run, "decoder")
    recipe = kept.recipe
    model = recipe.build(bpe.vocab).eval()
    prompted = dataclasses.replace(kept, tokenizer=bpe, model=model)
    placed = WordInText("On the ice a crane stood.", 13, 18)
    (word,) = vectors(prompted, [placed])
    assert word is not None and len(word.pieces) > 1
    assert bpe.decode(word.pieces).strip() == "crane"
    table = model.backbone.embedding.token.weight.detach().numpy()
    np.testing.assert_allclose(word.alone, table[word.pieces].mean(0), rtol=1e-5)


def test_unknown_words_are_left_out_and_listed(make_run: Make, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    senses = '[words.senses]\na = ["The {0} sat.", "A {0} sat."]\nb = ["My {0} sat.", "{0} sat."]\n'
    entry = '[[words]]\nword = "{0}"\n' + senses.replace("{0}", "[{0}]")
    file.write_text(entry.format("bank") + entry.format("xylophone"), encoding="utf-8")
    one = ProbedModel("x", open_prompted(make_run, "decoder"))
    result = WordInContext(str(file)).measure([one])
    assert {row["words"] for row in result.rows} == {1}
    assert "x: 1 of 2 words are unknown: xylophone" in result.notes
    file.write_text(entry.format("xylophone"), encoding="utf-8")
    with pytest.raises(UserError, match="knows none of the 1 words"):
        WordInContext(str(file)).measure([one])


def test_the_auc_equals_mann_and_whitneys() -> None:
    rng = np.random.default_rng(1)
    actual = {
        str(n): [CosinePair(float(x), bool(i % 3)) for i, x in enumerate(rng.normal(size=6))]
        for n in range(9)
    }
    every = [pair for pairs in actual.values() for pair in pairs]
    same, other = ([p.cosine for p in every if p.is_same == kind] for kind in (True, False))
    expected = mannwhitneyu(same, other).statistic / len(same) / len(other)
    figures = _figures(actual)
    assert figures["AUC"] == pytest.approx(expected)
    assert figures["low"] < figures["apart"] < figures["high"]


def test_the_plot_offsets_equal_lines_and_shows_a_model_without_layers_as_a_level() -> None:
    figure = Figure(layout="constrained")
    layers = {"vectors": ["alone", "0"], "one": ["alone", "0", "1"], "other": ["alone", "0", "1"]}
    rows = [
        {"run": run, "layer": layer, "same": 1.0, "other": 1.0, "AUC": 0.5}
        for run, of in layers.items()
        for layer in of
    ]
    _plot(figure, rows)
    left, _ = figure.axes
    level, one, _, other, _ = left.lines
    assert level.get_linestyle() == ":" and len(level.get_xdata()) == 3
    assert len({line.get_marker() for line in (level, one, other)}) == 3
    firsts = [np.asarray(line.get_xdata())[0] for line in (level, one, other)]
    assert np.diff(firsts) == pytest.approx(RUN_OFFSET)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no \\[\\[words\\]\\]"),
        ("words = 3", "no \\[\\[words\\]\\]"),
        ("[[words]]\nword = 'a'", "expected a word, and its senses"),
        ("[[words]]\nword = 'a'\n[words.senses]\nx = ['[a]', '[a]']", "two senses, has 1"),
        ("[[words]]\nword = 'a'\n[words.senses]\nx = ['[a]']\ny = []", "'x' needs at least two"),
        (
            "[[words]]\nword = 'a'\n[words.senses]\nx = ['[a]', 'a']\ny = ['[a]', '[a]']",
            "one \\[a\\] in it, got 'a'",
        ),
        ("[[words]", "not valid TOML"),
    ],
)
def test_a_malformed_list_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "words.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read_words(str(file))


def test_an_unknown_list_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match="did you mean 'english'"):
        read_words("englisch")
