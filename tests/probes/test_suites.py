"""Suites: questions read, answers scored, figures and comparisons, against figures by hand."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score

from foreword.cli.main import run as command
from foreword.errors import UserError
from foreword.evaluation.passages import PassageScore
from foreword.evaluation.statistics import signal_notes
from foreword.objectives.replaced_token import ReplacedToken
from foreword.probes import cloze, lama
from foreword.probes._contract import ProbedModel
from foreword.probes._suite import Answer, Question, Suite, best, paired
from foreword.probes._toml import kind_of
from foreword.probes.cloze import Cloze
from foreword.probes.cola_zero_shot import ColaZeroShot, pairs_in_order
from foreword.probes.in_context import InContext
from foreword.probes.lama import Lama
from foreword.runs.run_folder import open_run
from foreword.settings import kinds

Lambada: Any = kinds.load("probes", "lambada")
MinimalPairs: Any = kinds.load("probes", "minimal_pairs")
CrowsPairs: Any = kinds.load("probes", "crows_pairs")
Stereoset: Any = kinds.load("probes", "stereoset")
Choice: Any = kinds.load("probes", "choice")

Make = Callable[[str], Path]


def lines(file: Path, *rows: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


@pytest.fixture
def decoder(make_run: Make) -> ProbedModel:
    return ProbedModel("m", open_run(make_run("decoder"), "cpu"))


def test_the_best_option_shares_with_those_that_are_as_likely() -> None:
    assert best([-3.0, -1.0, -2.0], right=1) == (1, 1.0)
    assert best([-3.0, -1.0, -2.0], right=0) == (1, 0.0)
    assert best([-1.0, -1.0 - 1e-9, -2.0], right=1)[1] == 0.5


def test_the_shares_of_pairs_in_order_make_scikit_learns_auc() -> None:
    rng = np.random.default_rng(1)
    scores, is_high = rng.integers(0, 8, 60).astype(float), rng.random(60) < 0.6
    shares = pairs_in_order(scores, is_high)
    expected = roc_auc_score(is_high, scores)
    assert shares[is_high].mean() == pytest.approx(expected)
    assert shares[~is_high].mean() == pytest.approx(expected)
    both = np.stack([scores, is_high], axis=1)
    assert ColaZeroShot("x").statistic(both) == pytest.approx(expected)


def test_subsets_that_cannot_tell_models_apart_are_marked() -> None:
    questions = [Question(str(n), "a" if n < 20 else "b", "", "") for n in range(40)]
    right, half = [Answer("", 1.0)] * 20, [Answer("", float(n % 2)) for n in range(20)]
    other = [Answer("", float(n % 2 == 0)) for n in range(20)]
    found = Choice("x")._signals({"x": right + half, "y": half + other}, questions)
    (line,) = signal_notes(found, "models", "over the questions")
    assert line.endswith(
        "a 4.4; b 0.0, cannot tell the models apart; all 1.9, cannot tell the models apart"
    )
    assert set(Choice("x")._signals({"x": right + half}, questions).values()) == {None}


def test_two_models_are_compared_on_the_same_questions() -> None:
    one, other = np.array([1.0, 1, 1, 0, 1]), np.array([0.0, 1, 0, 1, 0])
    told = paired(one, other, Choice("x"))
    assert told.startswith("accuracy +0.400 (")
    p = binomtest(3, 4).pvalue
    assert told.endswith(f"higher on 3 questions, lower on 1, p = {p:.2g} (sign test)")


def test_the_last_word_of_a_passage_is_asked(decoder: ProbedModel, tmp_path: Path) -> None:
    file = lines(tmp_path / "p.jsonl", {"text": "he sat by the bank "}, {"text": "the river"})
    questions = Lambada(str(file)).questions()
    assert [(q.text, q.answer) for q in questions] == [("he sat by the", "bank"), ("the", "river")]
    found = Lambada(str(file)).measure([decoder])
    (row,) = found.rows
    nats = [answer["scores"][0] for answer in found.predictions]
    assert row["perplexity"] == pytest.approx(np.exp(-np.mean(nats)))
    assert row["accuracy"] == np.mean([answer["correct"] for answer in found.predictions])


def test_a_predicted_unknown_token_is_no_right_word(
    decoder: ProbedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = PassageScore(-0.1, 1, unknown=1, ranks=np.zeros(1, np.int64))
    assert not unknown.is_likeliest
    for module in (lama, cloze):
        monkeypatch.setattr(module, "score_passages", lambda *_, **__: iter([unknown]))
    facts = {"masked_sentences": ["the old [MASK]"], "obj_label": "zzz"}
    (row,) = Lama(str(lines(tmp_path / "f.jsonl", facts))).measure([decoder]).rows[:1]
    assert (row["accuracy"], row["in_first_10"]) == (0, 0)
    blank = {"text": "the old ___", "answer": "zzz", "alternatives": ["bank"]}
    (row,) = Cloze(files=str(lines(tmp_path / "c.jsonl", blank))).measure([decoder]).rows[:1]
    assert row["median_rank"] is None


@pytest.mark.parametrize("suite", [Lama("x"), Lambada("x"), InContext()])
def test_a_discriminator_is_told_which_models_rank_words(suite: Suite, make_run: Make) -> None:
    trained = open_run(make_run("encoder"), "cpu")
    recipe = replace(trained.recipe, objective=ReplacedToken())
    prompted = replace(trained, recipe=recipe)
    with pytest.raises(UserError, match="predicts none; models that can: causal, masked, permuted"):
        suite.method(prompted)
    assert "replaced" in Choice("x").method(prompted)


def test_files_of_the_same_name_have_questions_of_their_own(
    decoder: ProbedModel, tmp_path: Path
) -> None:
    def asked(answer: int) -> dict[str, object]:
        return {"question": "the river", "options": ["bank", "old"], "answer": answer}

    lines(tmp_path / "a" / "dev.jsonl", asked(0))
    lines(tmp_path / "b" / "dev.jsonl", asked(1), asked(0), asked(0))
    found = Choice(str(tmp_path / "*" / "dev.jsonl")).measure([decoder])
    assert found.rows[-1]["questions"] == 4
    expected = np.mean([answer["correct"] for answer in found.predictions])
    assert found.rows[-1]["accuracy"] == pytest.approx(expected)


def test_facts_are_asked_once_and_beside_the_most_frequent_answer(
    decoder: ProbedModel, tmp_path: Path
) -> None:
    facts = [
        {"masked_sentences": [f"the {a} [MASK] ."], "obj_label": b, "pred": "R"}
        for a, b in [("bank", "river"), ("old", "river"), ("river", "bank")]
    ]
    lines(tmp_path / "lama" / "one" / "facts.jsonl", *facts)
    lines(tmp_path / "lama" / "two" / "facts.jsonl", *facts)
    lines(
        tmp_path / "lama" / "born.jsonl",
        {"masked_sentences": ["[MASK] sat by the river"], "obj_label": "he"},
    )
    found = Lama(str(tmp_path / "lama")).measure([decoder])
    rows = {row["relation"]: row for row in found.rows}
    assert {name: row["questions"] for name, row in rows.items()} == {"R": 3, "born": 1, "all": 4}
    assert rows["R"]["chance"] == pytest.approx(2 / 3)
    assert rows["all"]["chance"] == pytest.approx(3 / 4)
    assert "m: 1 blanks begin a sentence and count as wrong" in found.notes


def test_options_are_compared_in_sum_and_per_character(
    decoder: ProbedModel, tmp_path: Path
) -> None:
    row = {"question": "he sat by", "choices": ["the bank of the river", "the bank"], "answer": "A"}
    file = lines(tmp_path / "choice.jsonl", row)
    found = Choice(str(file)).measure([decoder])
    (answer,) = found.predictions
    long, short = answer["scores"]
    assert answer["correct"] == float(long > short) == 0.0, "a longer text of these is less likely"
    assert found.rows[0]["per_character"] == float(long / 21 > short / 8)
    assert found.rows[0]["chance"] == 0.5
    asked = Choice(str(file), ask="Question: {question}\nAnswer:").questions()
    assert asked[0].text == "Question: he sat by\nAnswer:"


@pytest.mark.parametrize("family", ["decoder", "encoder", "encoder_decoder", "lstm"])
def test_a_model_without_a_preference_is_at_chance(
    family: str, make_run: Make, tmp_path: Path
) -> None:
    """All weights are 0, so all tokens are equally likely: ties share the point."""
    prompted = open_run(make_run(family), "cpu")
    for parameter in prompted.model.parameters():
        parameter.data.zero_()
    model = ProbedModel("m", prompted)
    pairs = [("the bank", "the river"), ("the river", "the bank"), ("old man", "old man")]
    blimp = lines(
        tmp_path / "p.jsonl", *({"sentence_good": a, "sentence_bad": b} for a, b in pairs)
    )
    options = ["bank", "river", "old", "bank"]
    asked = [{"question": "the", "options": options, "answer": n} for n in range(4)]
    article = {"article": "he sat", "questions": ["_ ."], "options": [options], "answers": ["B"]}
    race = tmp_path / "race" / "test" / "high" / "1.txt"
    lines(race, article)
    crows = tmp_path / "crows.csv"
    crows.write_text(
        "sent_more,sent_less,stereo_antistereo,bias_type\n"
        "the old bank,the old river,stereo,age\nthe man,the bank,antistereo,age\n"
    )
    for suite in (
        MinimalPairs(str(blimp)),
        Choice(str(lines(tmp_path / "choice.jsonl", *asked))),
        Choice(str(tmp_path / "race")),
        CrowsPairs(str(crows)),
    ):
        found = suite.measure([model])
        total = found.rows[-1]
        assert found.scores["m"] == total["chance"], suite


def test_cola_is_read_as_it_was_published(decoder: ProbedModel, tmp_path: Path) -> None:
    file = tmp_path / "dev.tsv"
    file.write_text('gj04\t1\t\tthe bank of the river\ngj04\t0\t*\tbank "the\n', encoding="utf-8")
    for given in (file, tmp_path):
        found = ColaZeroShot(str(given)).measure([decoder])
        first, second = (answer["scores"][0] for answer in found.predictions)
        assert found.scores == {"m": float(first > second)}


@pytest.mark.parametrize("inner", ["", "raw"])
def test_colas_folder_as_published_is_read(inner: str, tmp_path: Path) -> None:
    (tmp_path / inner).mkdir(exist_ok=True)
    for part, label in (("in", 1), ("out_of", 0)):
        file = tmp_path / inner / f"{part}_domain_dev.tsv"
        file.write_text(f"gj04\t{label}\t\tthe bank\n", encoding="utf-8")
    names = [question.name for question in ColaZeroShot(str(tmp_path)).questions()]
    assert names == ["in_domain_dev.tsv:1", "out_of_domain_dev.tsv:1"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"neither dev\.tsv nor in_domain_dev\.tsv in it; name the"):
        ColaZeroShot(str(tmp_path / "empty")).questions()


@pytest.mark.parametrize(
    ("suite", "row", "message"),
    [
        (Lambada, {"text": "one"}, "expected two words or more"),
        (Lambada, {"words": "one two"}, "no column 'text'; its columns: words"),
        (Lama, {"masked_sentences": ["no blank"], "obj_label": "x"}, "expected one"),
        (Lama, {"masked_sentences": ["a [MASK]"], "obj_label": ""}, "no answer in obj_label"),
        (Lama, {"masked_sentences": ["a [MASK]"]}, "no column 'obj_label'; its columns: masked"),
        (MinimalPairs, {"text": "one two"}, "no column 'sentence_good'; its columns: text"),
        (CrowsPairs, {"a": "1", "b": "2"}, "no column 'sent_more'; its columns: a, b"),
        (Cloze, {"text": "a ___", "answer": "b"}, "no column 'alternatives'; its columns: text, a"),
        (ColaZeroShot, {"text": "a", "label": "1"}, "no column 'sentence'; its columns: text, l"),
        (Choice, {"question": "q", "choices": ["a"], "answer": "A"}, "at least two options"),
        (Choice, {"question": "q", "choices": ["a", "b"]}, "no answer in"),
        (ColaZeroShot, {"sentence": "a", "label": "2"}, "the label 0 or 1"),
        (ColaZeroShot, {"sentence": "a", "label": "1"}, "sentences of both labels"),
    ],
)
def test_bad_rows_are_refused_in_one_line(
    suite: type[Suite], row: object, message: str, tmp_path: Path
) -> None:
    file = lines(tmp_path / "rows.jsonl", row)
    with pytest.raises(UserError, match=message) as error:
        suite(files=str(file)).questions()
    assert str(error.value).startswith(str(file)) and "\n" not in str(error.value)


HALF = "a \ud800 b"  # as JSON can spell it


@pytest.mark.parametrize(
    ("suite", "row"),
    [
        (Choice, {"query": HALF, "gold": 0, "choices": ["x", "y"]}),
        (Choice, {"query": "q", "gold": 0, "choices": ["x", HALF]}),
        (Lambada, {"text": HALF}),
        (Lama, {"masked_sentences": [f"{HALF} [MASK]"], "obj_label": "x"}),
        (MinimalPairs, {"sentence_good": HALF, "sentence_bad": "a"}),
        (CrowsPairs, {"sent_more": HALF, "sent_less": "a"}),
        (Cloze, {"text": f"{HALF} ___", "answer": "x", "alternatives": ["y"]}),
        (ColaZeroShot, {"sentence": HALF, "label": "1"}),
    ],
)
def test_half_a_character_is_refused_with_its_line(
    suite: type[Suite], row: object, tmp_path: Path
) -> None:
    file = lines(tmp_path / "s.jsonl", row)
    with pytest.raises(UserError, match=r"s\.jsonl:1: half a character \(a lone surrogate\)"):
        suite(files=str(file)).questions()


def test_half_a_character_in_stereoset_is_refused_with_its_item(tmp_path: Path) -> None:
    sentences = [{"gold_label": "stereotype", "sentence": HALF}]
    item = {"id": "1", "bias_type": "race", "context": "c", "sentences": sentences}
    file = lines(tmp_path / "dev.json", {"data": {"intrasentence": [item]}})
    with pytest.raises(UserError, match="intrasentence item 1: half a character"):
        Stereoset(str(file)).questions()


def test_a_folder_is_refused_where_a_file_is_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"probe\.files: .*: a folder; name the file in it"):
        Stereoset(str(tmp_path)).questions()


def test_a_subset_with_the_name_of_the_total_is_refused(
    decoder: ProbedModel, tmp_path: Path
) -> None:
    pair = {"sentence_good": "the bank", "sentence_bad": "bank the"}
    file = lines(tmp_path / "p.jsonl", {**pair, "UID": "x"}, {**pair, "UID": "all"})
    with pytest.raises(
        UserError, match=r"p\.jsonl:2: the paradigm 'all' has the name of the total"
    ):
        MinimalPairs(str(file)).measure([decoder])


def test_a_score_that_all_draws_share_has_no_interval(decoder: ProbedModel, tmp_path: Path) -> None:
    rows = [{"text": "he sat by the bank"}] * 3
    other = replace(decoder, label="o")
    found = Lambada(str(lines(tmp_path / "p.jsonl", *rows))).measure([decoder, other])
    for row in found.rows:
        assert row["low"] is row["high"] is row["perplexity_low"] is None
        assert row["accuracy"] in (0, 1) and row["perplexity"] > 0
    assert found.notes[-1].startswith("no interval: a score that all draws share")
    assert "m against o: accuracy +0.000 (no interval); higher on 0 questions" in found.notes[-2]
    varied = lines(tmp_path / "v.jsonl", rows[0], {"text": "the old river"})
    found = Lambada(str(varied)).measure([decoder])
    assert found.rows[0]["perplexity_low"] < found.rows[0]["perplexity_high"]


@pytest.mark.product(few=3)
@pytest.mark.parametrize("family", ["decoder", "encoder"])
@pytest.mark.parametrize(
    ("suite", "row"),
    [
        (Lambada, lambda text: {"text": f"{text} king"}),
        (Lama, lambda text: {"masked_sentences": [f"{text} [MASK]"], "obj_label": "king"}),
        (Cloze, lambda text: {"text": f"{text} ___", "answer": "king", "alternatives": ["man"]}),
        (Choice, lambda text: {"question": text, "choices": ["king", "man"], "answer": "A"}),
        (MinimalPairs, lambda text: {"sentence_good": f"{text} king", "sentence_bad": text}),
        (CrowsPairs, lambda text: {"sent_more": f"{text} king", "sent_less": f"{text} man"}),
        (ColaZeroShot, lambda text: {"sentence": text, "label": int(len(text) > 30)}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_questions_that_a_model_cannot_read_in_whole_are_counted(
    suite: type[Suite], row: Callable[[str], object], family: str, make_run: Make, tmp_path: Path
) -> None:
    model = ProbedModel("m", open_run(make_run(family), "cpu"))
    short, long = "the old man sat by the river", "the old man sat by the river and " * 4
    file = lines(tmp_path / "rows.jsonl", row(short), row(f"{long}sat"), row(f"{long}the bank"))
    found = suite(files=str(file)).measure([model])  # it reads 24 tokens
    cut = [note for note in found.notes if " cut" in note]
    assert cut == ["m: 2 of 3 questions have more than 24 tokens and are cut"]
    found = suite(files=str(lines(file, row(short), row(f"{short} and the")))).measure([model])
    assert not any(" cut" in note for note in found.notes)


def test_probe_asks_runs_and_saves_every_answer(
    make_run: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [make_run(family) for family in ("decoder", "encoder")]
    file = lines(tmp_path / "p.jsonl", {"text": "he sat by the bank"}, {"text": "the river"})
    words = ["probe", *map(str, runs), "lambada", "--data", str(file), "--quiet"]
    assert command([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    for run in runs:
        assert json.loads((run / "evaluations" / "suite-lambada.json").read_text("utf-8")) == told
    assert len(told["predictions"]) == 4
    assert any(note.startswith("decoder against encoder: accuracy") for note in told["notes"])
    for row in told["rows"]:
        assert row["perplexity_low"] <= row["perplexity"] <= row["perplexity_high"]
    assert command(words) == 0
    assert "perplexity low" not in (shown := capsys.readouterr().out) and "perplexity" in shown
    pairs = lines(tmp_path / "b.jsonl", {"sentence_good": "he sat", "sentence_bad": "sat he"})
    assert command(["probe", str(runs[0]), "blimp", "--data", str(pairs)]) == 0
    shown = capsys.readouterr()
    assert "chance: 0.5000, in each row" in shown.err and "chance" not in shown.out


def test_mistakes_are_reported_in_one_line(
    make_run: Make, tmp_path: Path, refused: Callable[..., str]
) -> None:
    run = make_run("decoder")
    assert "did you mean 'lambada'" in refused("probe", run, "lambda")
    assert "did you mean 'minimal_pairs'" in refused("probe", run, "blimpp")
    assert "there is: analogies, attention, choice" in refused("probe", run, "zzzz")
    assert "the last word is what to measure" in refused("probe", run, run)
    assert "No such option: --rows" in refused("probe", run, "lama", "--rows", "3")
    assert "blimp: requires --data" in refused("probe", run, "blimp")
    assert "takes one file" in refused("probe", run, "blimp", "--data", "a", "--data", "b")
    words = ("probe", run, "blimp", "--data", "a", "--field", "x")
    assert "--field: is for text" in refused(*words)
    assert "--suite: now 'foreword probe RUN... NAME" in refused("evaluate", run, "--suite=cloze")
    assert "--kind: now 'foreword probe RUN... NAME" in refused("probe", run, "--kind", "cloze")
    pairs = ("probe", run, "blimp", "--data")
    assert "no such file or folder" in refused(*pairs, tmp_path / "none")


PLURALS = Path(__file__).parents[2] / "docs" / "examples" / "probes" / "plurals.toml"


def test_a_suite_of_ones_own_is_a_toml_file_or_a_kind_of_a_plug_in(
    make_run: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run("decoder")
    row = {"singular": "river", "plural": "the bank", "wrong": "the old", "rule": "irregular"}
    data = lines(tmp_path / "p.jsonl", row, row | {"plural": "the old", "wrong": "the bank"})
    told = []
    plugged = ["plurals", "--plugins", str(PLURALS.parents[1])]
    for words in ([str(PLURALS)], plugged):
        assert command(["probe", str(run), *words, "--data", str(data), "--json", "--quiet"]) == 0
        told.append(json.loads(capsys.readouterr().out))
    assert told[0]["name"] == "suite-plurals" and told[0]["rows"] == told[1]["rows"]
    (irregular, total) = told[0]["rows"]
    assert (irregular["subset"], total["questions"], total["chance"]) == ("irregular", 2, 0.5)
    assert total["accuracy"] == 0.5, "one of the two is likelier"
    assert told[0]["predictions"][0]["text"] == "One river, two the bank"


@pytest.mark.parametrize(
    ("columns", "row", "right"),
    [
        ('options = ["a", "b"]\nanswer = "gold"', {"a": "x", "b": "y", "gold": "B"}, "y"),
        ('options = ["all"]\nanswer = "gold"', {"all": ["x", "y"], "gold": 1}, "y"),
        ('options = ["all"]', {"all": ["x", "y"]}, "x"),
    ],
)
def test_the_right_option_is_the_first_or_the_one_that_a_column_names(
    columns: str, row: object, right: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f"[columns]\n{columns}\n")
    suite = kind_of(file, "suite.mine")(files=str(lines(tmp_path / "rows.jsonl", row)))
    (question,) = suite.questions()
    assert (question.answer, question.options) == (right, ("x", "y"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("columns = {}", "columns.options"),
        ("columns = { options = [] }", "columns.options: expected the columns"),
        ('scores = "sum"\n[columns]\noptions = ["a"]', "did you mean 'score'"),
        ("columns = [", "not valid TOML"),
        ('[columns]\noptions = ["c"]', "no column 'c'; its columns: a, b"),
        ('[columns]\noptions = ["a"]', "rows.jsonl:1: 'a' is not a list of options"),
        ('[columns]\noptions = ["b"]', "rows.jsonl:1: expected at least two options, got 0"),
        ('score = "likeliest"\n[columns]\noptions = ["a", "b"]', "expected one column with"),
    ],
)
def test_mistakes_in_a_suite_of_ones_own_are_one_line(
    content: str, message: str, make_run: Make, refused: Callable[..., str], tmp_path: Path
) -> None:
    file, data = tmp_path / "mine.toml", lines(tmp_path / "rows.jsonl", {"a": "x", "b": []})
    file.write_text(content)
    assert message in refused("probe", make_run("decoder"), file, "--data", data)
    assert "cannot be read" in refused("probe", make_run("lstm"), tmp_path / "no.toml")


def test_a_suite_in_toml_is_pickled_by_its_name() -> None:
    probe = MinimalPairs("x", limit=3)
    assert pickle.loads(pickle.dumps(probe)) == probe  # noqa: S301
