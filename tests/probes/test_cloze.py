"""Suite cloze: options scored in their blank, ranks, and the most frequent option beside them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from foreword.data.holdout import SplitFiles
from foreword.data.write_shards import PrepareSettings, prepare
from foreword.errors import UserError
from foreword.evaluation.filling import fill
from foreword.evaluation.scoring import score
from foreword.probes._contract import ProbedModel
from foreword.probes._frequency import occurrences
from foreword.probes.cloze import Cloze
from foreword.runs.run_folder import open_run

Make = Callable[[str], Path]
ITEM = {"text": "he sat by the ___ of the river", "answer": "bank"}
OPTIONS = ["bank", "old", "river"]


def probed(run: Path) -> ProbedModel:
    return ProbedModel("m", open_run(run, "cpu"))


def lines(file: Path, *rows: object) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(file)


def one_item(folder: Path) -> str:
    return lines(folder / "own.jsonl", {**ITEM, "alternatives": OPTIONS[1:]})


def test_a_causal_model_compares_whole_sentences(make_run: Make, tmp_path: Path) -> None:
    model = probed(make_run("decoder"))
    (answer,) = Cloze(files=one_item(tmp_path)).measure([model]).predictions
    wholes = [score(model.trained, ITEM["text"].replace("___", word)) for word in OPTIONS]
    expected = np.array([-whole.totals.nats for whole in wholes])
    # Their texts have the same beginning; the end of a text is not scored.
    ends = np.array([whole.log_probs[-1] for whole in wholes]) if wholes[0].totals.ends else 0.0
    found = np.array(answer["scores"])
    assert found - found[0] == pytest.approx((expected - ends) - (expected - ends)[0], abs=1e-4)
    assert answer["given"] == OPTIONS[int(found.argmax())]
    assert answer["correct"] == float(found.argmax() == 0)


def test_a_masked_model_gives_words_their_probability_and_rank_in_the_blank(
    make_run: Make, tmp_path: Path
) -> None:
    model = probed(make_run("encoder"))
    found = Cloze(files=one_item(tmp_path)).measure([model])
    every = model.trained.vocab.size
    (blank,) = fill(model.trained, ITEM["text"].replace("___", "[MASK]"), top=every).blanks
    texts = [candidate.text for candidate in blank]
    probabilities = [blank[texts.index(word)].probability for word in OPTIONS]
    assert np.exp(found.predictions[0]["scores"]) == pytest.approx(probabilities, rel=1e-3)
    assert found.rows[0]["median_rank"] == texts.index("bank") + 1


@pytest.mark.parametrize("family", ["encoder_decoder", "lstm", "fixed_window"])
def test_every_family_that_scores_texts_chooses(
    make_run: Make, tmp_path: Path, family: str
) -> None:
    row, _ = Cloze(files=one_item(tmp_path)).measure([probed(make_run(family))]).rows
    assert row["kind"] == "own" and row["accuracy"] in (0.0, 1.0)
    assert row["chance"] == pytest.approx(1 / 3)
    assert (row["median_rank"] is None) == (family == "encoder_decoder")


def test_the_most_frequent_option_of_the_training_text_stands_beside_the_model(
    make_run: Make, tmp_path: Path
) -> None:
    files = lines(
        tmp_path / "own.jsonl",
        {**ITEM, "alternatives": ["old"]},
        {"text": "he sat by the ___", "answer": "old", "alternatives": ["bank"]},
        {"text": "the ___", "answer": "he", "alternatives": ["bank"]},
    )
    run = make_run("decoder")
    found = Cloze(files=files).measure([probed(run)])
    assert found.rows[0]["most_frequent"] is None
    assert any("training text is not there" in note for note in found.notes)
    text = tmp_path / "text.txt"
    text.write_text("the bank of the old bank he", encoding="utf-8")
    tokenizer = probed(run).trained.tokenizer
    prepare(SplitFiles.find([str(text)]), tokenizer, run / "shards", PrepareSettings(heldout=0.0))
    rows = Cloze(files=files).measure([probed(run)]).rows
    assert rows[0]["most_frequent"] == pytest.approx(1 / 3)


def test_words_are_counted_as_their_tokens_in_order(make_run: Make, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the bank of the bank of the old bank", encoding="utf-8")
    tokenizer = probed(make_run("decoder")).trained.tokenizer
    shards = prepare(
        SplitFiles.find([str(text)]), tokenizer, tmp_path / "s", PrepareSettings(heldout=0.0)
    ).train
    the, bank, of, old = (int(tokenizer.encode(w)[0]) for w in ("the", "bank", "of", "old"))
    words = [(the,), (the, bank), (bank, of, the), (old, bank), (bank, the)]
    found = occurrences(shards, words)
    assert [found[word] for word in words] == [3, 2, 2, 1, 0]


def test_the_shipped_sentences_are_asked_by_kind_or_by_group() -> None:
    kinds = ["trivia", "syntax", "coreference", "topic", "sentiment", "reasoning", "arithmetic"]
    for language in ("en", "ko"):
        few = Cloze(language, limit=2).questions()
        assert list(dict.fromkeys(question.subset for question in few)) == kinds
        assert len(few) == 2 * len(kinds)
    subsets = {question.subset for question in Cloze(by="group").questions()}
    assert {"trivia", "sentiment: positive", "syntax: agreement"} <= subsets


def test_a_language_beside_own_sentences_is_refused() -> None:
    with pytest.raises(ValueError, match="not files"):
        Cloze("ko", files="own.jsonl")


def test_a_blank_at_the_beginning_has_no_rank_in_a_causal_model(
    make_run: Make, tmp_path: Path
) -> None:
    item = {"text": "___ sat by the river", "answer": "he", "alternatives": "the bank"}
    found = Cloze(files=lines(tmp_path / "own.jsonl", item)).measure([probed(make_run("decoder"))])
    assert found.rows[0]["median_rank"] is None
    assert found.predictions[0]["options"] == ["he", "the", "bank"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": "he sat"}, "expected one ___ in text"),
        ({"text": "___ sat ___"}, "expected one ___ in text"),
        ({"answer": " "}, "no word in answer"),
        ({"alternatives": []}, "no word in alternatives"),
        ({"alternatives": ["old", ""]}, "no word in alternatives"),
        ({"alternatives": ["old", None]}, "no word in alternatives"),
        ({"alternatives": ["old", "bank"]}, "an option of the blank occurs twice"),
    ],
)
def test_a_wrong_row_is_refused_by_its_line(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    good = {**ITEM, "alternatives": OPTIONS[1:]}
    files = lines(tmp_path / "own.jsonl", good, {**good, **change})
    with pytest.raises(UserError, match=rf"own\.jsonl:2: {message}"):
        Cloze(files=files).questions()
