"""Measures of written answers, against the libraries and scripts that define them."""

from __future__ import annotations

import json
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

from foreword import predict, tune
from foreword.cli.main import run as command
from foreword.errors import UserError
from foreword.evaluation.text_metrics import share_known, text_scores, word_rules
from foreword.runs.run_folder import open_run
from foreword.tables.columns import Columns
from foreword.tables.examples import Labelled
from foreword.tuning.tasks.text_to_text import TextToText, answers_of
from tests.tuning.runs import make_run, reviews

ANSWERS = ["The cat sat on the mat.", "a dog's day", "", "two films; one town"]
REFERENCES = [
    ["The cat sat on a mat", "It sat"],
    ["The day of a dog"],
    ["nothing"],
    ["One town, two films!", "we saw two films in one town"],
]
FAST: dict[str, Any] = {
    "task": "text_to_text", "seeds": 1, "device": "cpu", "precision": "fp32",
    "progress": False, "lr": 3e-3,
}  # fmt: skip


def test_rouge_is_that_of_the_library_by_the_best_reference() -> None:
    scorer = pytest.importorskip("rouge_score.rouge_scorer")
    names = ["rouge1", "rouge2", "rougeL"]
    theirs = scorer.RougeScorer(names)
    scored = [theirs.score_multi(r, a) for a, r in zip(ANSWERS, REFERENCES, strict=True)]
    expected = {name: sum(one[name].fmeasure for one in scored) / 4 for name in names}
    assert text_scores("rouge", ANSWERS, REFERENCES) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("answer", "other"),
    [
        ("किताब पढ़ना", "कुतुब"),
        ("ผู้หญิงคนนี้", "ไก่"),
        ("தமிழ் மொழி", "தமழி"),
        ("বাংলা ভাষা", "বিংলো"),
        ("كَتَبَ", "كُتِبَ"),
        ("niño cafe\u0301", "nino cafe"),
        ("我们去北京。", "他她它"),
        ("日本語カナ", "ひらがな"),
        ("영화가 좋다", "영화는 나쁘다"),
    ],
)
def test_words_are_compared_in_every_script(answer: str, other: str) -> None:
    pytest.importorskip("rouge_score")
    composed, decomposed = (unicodedata.normalize(form, answer) for form in ("NFC", "NFD"))
    for metric, names in (("rouge", ("rouge1", "rougeL")), ("answer", ("answer_f1",))):
        equal = text_scores(metric, [composed], [[decomposed]])  # type: ignore[arg-type]
        assert all(equal[name] == 1.0 for name in names), metric
        if metric == "rouge":
            assert text_scores(metric, [answer], [[other]])["rouge1"] == 0.0


def test_a_part_of_an_answer_without_spaces_counts() -> None:
    for metric, name in (("rouge", "rouge1"), ("answer", "answer_f1")):
        scores = text_scores(metric, ["北京", "ที่นี่"], [["北京市"], ["ที่"]])  # type: ignore[arg-type]
        assert scores[name] == pytest.approx((2 * 2 / 5 + 2 / 3) / 2)
    assert text_scores("bleu", ["我们去北京。"], [["我们去北京！"]])["bleu"] > 50


def test_each_rule_of_words_is_named() -> None:
    assert [
        rule.partition(":")[0] for rule in word_rules(("answer_f1", "exact_match", "rouge1"))
    ] == [
        "ROUGE of words",
        "F1 of words",
    ]
    assert word_rules(("accuracy",)) == []


def test_without_the_library_rouge_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    run = make_run(tmp_path / "run", "encoder_decoder")
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "we saw", "label": "a day"}\n')
    call = ["tune", str(run), "--task", "text_to_text", "--train", str(file), "--dev", str(file)]
    assert command([*call, "--set", "task.metric=rouge", "--quiet"]) == 2
    assert "rouge requires rouge-score: pip install" in capsys.readouterr().err.splitlines()[-1]
    assert command([*call, "--set", "task.metric=rogue", "--quiet"]) == 2
    assert "task.metric" in capsys.readouterr().err.splitlines()[-1]


def test_bleu_is_sacrebleus() -> None:
    columns = [[r[0] for r in REFERENCES], [r[1] if len(r) > 1 else None for r in REFERENCES]]
    scores = text_scores("bleu", ANSWERS, REFERENCES)
    assert scores["bleu"] == pytest.approx(sacrebleu.corpus_bleu(ANSWERS, columns).score)
    assert scores["chrf"] == pytest.approx(sacrebleu.corpus_chrf(ANSWERS, columns).score)


def test_answers_are_scored_by_squads_rules() -> None:
    scores = text_scores("answer", ["the Cat!", "a dog", ""], [["dog", "cat"], ["dogs"], ["cat"]])
    assert scores == {"exact_match": pytest.approx(1 / 3), "answer_f1": pytest.approx(1 / 3)}
    # Punctuation of English beyond ASCII stays, as in the published script; that of others goes.
    kept = text_scores("answer", ["1986–90", "the “cat”"], [["198690"], ["cat"]])
    assert kept == {"exact_match": 0.0, "answer_f1": 0.0}
    for given, right in (("दिल्ली।", "दिल्ली"), ("北京。", "北京"), ("ما؟", "ما"), ("a\u0301", "á")):
        assert text_scores("answer", [given], [[right]])["exact_match"] == 1.0


def test_the_share_of_known_answers_is_by_squads_rules() -> None:
    assert share_known([["The cat"], ["dog", "wolf"], ["bird"], ["x"]], ["cat!", "a wolf"]) == 0.5


def test_lists_of_sentences_and_of_answers_are_read() -> None:
    row = {"source": ["We saw.", "A film."], "target": ["one ", "two"]}
    example = TextToText().reader.read(row, Columns("source", "target"), "x:1")
    assert example is not None
    assert example.text == "We saw. A film."
    assert answers_of(example) == ["one", "two"]
    targets = TextToText(metric="answer", words=("one=uno",)).targets([example], ())
    assert targets.references == [["uno", "two"]]
    assert TextToText().labels([example]) == ("one",)
    assert (
        TextToText().reader.read({"source": [], "target": []}, Columns("source", "target"), "")
        is None
    )
    with pytest.raises(UserError, match="x:1: expected text or a number, got dict"):
        TextToText().reader.read({"source": [{}], "target": ""}, Columns("source", "target"), "x:1")


@pytest.mark.full
@pytest.mark.parametrize(
    ("layout", "metric"),
    [
        ("encoder_decoder", "answer"),
        ("prefix", "bleu"),
        ("decoder", "answer"),
        ("hybrid", "bleu"),
    ],
)
def test_what_is_written_is_scored_and_predicted_alike(
    layout: str, metric: str, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", layout)
    words = {"bad": "dull grim", "good": "fine"}
    train, dev = (
        [(one.text, words[one.label]) for one in reviews(count, seed)]
        for count, seed in ((200, 1), (24, 2))
    )
    result = tune(run, train, dev, settings={"task.metric": metric}, epochs=5, **FAST)
    first = "exact_match" if metric == "answer" else "bleu"
    tuned, baseline = result.rows
    assert baseline["strategy"] == (
        "most frequent answer" if metric == "answer" else "the text itself"
    )
    found = predict(result.out, [text for text, _ in dev], device="cpu", progress=False)
    scores = text_scores(metric, found.predictions, [[label] for _, label in dev])  # type: ignore[arg-type]
    assert scores[first] == pytest.approx(tuned[first])
    last = "answer_f1" if metric == "answer" else "chrf"
    assert tuned[last] > baseline[last]
    assert any("of words: " in note for note in result.content["notes"])
    assert result.content["labels"] == ()
    task = json.loads((result.out / "labels.json").read_text())["task"]
    assert task["max_tokens"] == 3  # two words and the end


def test_the_share_of_dev_answers_known_from_training_is_noted(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "encoder_decoder")
    train = [("we saw", "a day"), ("the film", "warm")]
    dev = [("we saw a film", "day"), ("the town", "cold")]
    result = tune(run, train, dev, settings={"task.metric": "answer"}, epochs=1, **FAST)
    note = "50.0% of the dev answers are answers of training examples too"
    assert note in result.content["notes"]
    examples, tokenizer = [Labelled("a", "the town")], open_run(run, "cpu").tokenizer
    assert TextToText().judge.notes(examples, examples, tokenizer) == []
    two_lines = [*examples, Labelled("a", "the\ntown"), Labelled("a", "the  town")]
    (note,) = TextToText().judge.notes(two_lines, examples, tokenizer)
    assert note.startswith("2 of 3 training answers cannot be written as they are")
    assert note.endswith("'the\\ntown' is 'the town'")


def test_the_note_is_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", "encoder_decoder")
    file = tmp_path / "a.tsv"
    file.write_text("text\tlabel\nwe saw\ta day\n")
    call = ["tune", str(run), "--task", "text_to_text", "--train", str(file), "--dev", str(file)]
    options = ["--set", "task.metric=answer", "--seeds", "1", "--epochs", "1", "--device", "cpu"]
    assert command([*call, *options]) == 0
    assert capsys.readouterr().err.count("100.0% of the dev answers") == 1


def test_summaries_stand_beside_their_first_sentence() -> None:
    pytest.importorskip("rouge_score")
    task = TextToText(metric="rouge")
    examples = [Labelled("We saw a film. It was dull.", "we saw a film")]
    targets = task.targets(examples, ())
    outputs = task.judge.baselines(targets, targets, ())
    assert outputs["first sentence"].tolist() == ["We saw a film."]
    assert task.judge.scores(outputs["first sentence"], targets)["rougeL"] == 1.0
