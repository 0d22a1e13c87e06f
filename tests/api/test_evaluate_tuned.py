"""Tuned models are scored on labelled examples, with intervals, and compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sklearn.metrics import accuracy_score, f1_score

from foreword import evaluate_tuned, predict, tune
from foreword.cli.main import run as command
from foreword.errors import UserError
from foreword.reports.page import write_page
from foreword.tuning.evaluate import ScoredExamples, scored
from foreword.verbs.evaluate_tuned import TunedEvaluation
from tests.tuning.runs import make_run, reviews

FAST: dict[str, Any] = {
    "strategy": "full", "seeds": 1, "epochs": 1, "device": "cpu", "progress": False,
}  # fmt: skip
TRAIN, DEV = ([(e.text, e.label) for e in reviews(48, seed)] for seed in (1, 2))
SPAN, CHOICE = ("context", "question", "answers"), ("question", "options", "answer")
QUIET: dict[str, Any] = {"device": "cpu", "progress": False}


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foreword.tuning.evaluate.DRAWS", 20)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("evaluate") / "run")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for name, examples in (("train", TRAIN), ("dev", DEV), ("test", TRAIN[:10] + DEV[:15])):
        lines = [f"{label}\t{text}" for text, label in examples]
        (folder / f"{name}.tsv").write_text("\n".join(["mark\tsaid", *lines]), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def tuned(run: Path, files: Path) -> Path:
    how = {**FAST, "text": "said", "label": "mark", "lr": 1e-2, "epochs": 4}
    return tune(run, files / "train.tsv", files / "dev.tsv", name="a", **how).out


@pytest.fixture(scope="module")
def scratch(run: Path, files: Path) -> Path:
    columns = {"text": "said", "label": "mark", "from_scratch": True, "lr": 1e-5}
    return tune(run, files / "train.tsv", files / "dev.tsv", name="b", **columns, **FAST).out


def test_scores_are_those_of_the_predictions(tuned: Path, files: Path) -> None:
    result = evaluate_tuned(tuned, files / "test.tsv", **QUIET)
    found = predict(tuned, files / "test.tsv", **QUIET).rows
    given, right = [row["prediction"] for row in found], [row["mark"] for row in found]
    (row,) = result.rows
    assert row["accuracy"] == pytest.approx(accuracy_score(right, given))
    assert row["f1"] == pytest.approx(f1_score(right, given, average="macro"))
    assert row["accuracy_low"] <= row["accuracy"] <= row["accuracy_high"]
    assert row["examples"] == sum(map(sum, result.content["confusion"])) == 25
    saved = json.loads(result.file.read_text(encoding="utf-8"))
    assert saved["rows"] == result.rows and saved["confusion"] == result.content["confusion"]


def test_without_data_the_scores_are_those_of_fine_tuning(tuned: Path) -> None:
    (row,) = evaluate_tuned(tuned, **QUIET).rows
    known = json.loads((tuned / "scores.json").read_text(encoding="utf-8"))["epochs"][-1]
    assert row["accuracy"] == known["accuracy"] and row["matthews"] == known["matthews"]


def test_models_are_compared_on_the_same_examples(
    run: Path, tuned: Path, scratch: Path, files: Path
) -> None:
    result = evaluate_tuned([tuned, scratch], files / "test.tsv", **QUIET)
    (one, other), difference = result.rows, result.notes[1]
    assert difference.startswith(
        f"a against b: accuracy {one['accuracy'] - other['accuracy']:+.3f}"
    )
    again = evaluate_tuned([tuned, tuned.parent / ".." / "tuned" / "a"], **QUIET)
    assert [row["model"] for row in again.rows] == ["a"]  # one folder is one model
    page = write_page(run, run / "report.html").read_text(encoding="utf-8")
    assert "Scores on test.tsv" in page and f"{one['accuracy']:.3f}"[:5] in page


TAGGED = [(words := text.split(), [word[:1] for word in words]) for text, _ in TRAIN]
QUESTION = ("the film was warm", "what was it", {"text": ["warm"], "answer_start": [13]})
OPTIONS = ("the film", ["was warm", "in town"])
CHATS = [{"prompt": text, "completion": label} for text, label in TRAIN[:12]]


@pytest.mark.product(few=3)
@pytest.mark.parametrize(
    ("layout", "task", "examples"),
    [
        ("encoder", "regress", [(text, len(text)) for text, _ in TRAIN]),
        ("decoder", "embed", [(text, text[::-1]) for text, _ in TRAIN[:20]]),
        ("encoder", "tag", TAGGED),
        ("encoder", "span", [dict(zip(SPAN, QUESTION, strict=True))] * 5),
        (
            "encoder",
            "choice",
            [dict(zip(CHOICE, (*OPTIONS, n), strict=True)) for n in (0, 1, 1)],
        ),
        ("encoder_decoder", "text_to_text", TRAIN[:12]),
        ("decoder", "text_to_text", TRAIN[:12]),
        ("diffusion", "text_to_text", TRAIN[:12]),
        ("diffusion", "chat", CHATS),
    ],
)
def test_every_task_is_scored_as_fine_tuning_scores_it(
    layout: str, task: str, examples: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = tune(make_run(tmp_path / "run", layout), examples, examples, task=task, **FAST)
    steps = count_answers(monkeypatch)
    (row,) = evaluate_tuned(result.out, examples, **QUIET).rows
    known = result.content["epochs"][0]
    names = [name for name in row if f"{name}_low" in row]
    assert names
    assert {name: row[name] for name in names} == pytest.approx(
        {name: known[name] for name in names}, abs=1e-5
    )
    assert_all_answered(steps)


def test_answers_in_any_order_are_compared_where_they_can_be(tmp_path: Path) -> None:
    """A bound is marked and ranked with no perplexity; two models have the scores of both."""
    runs = [make_run(tmp_path / layout, layout) for layout in ("diffusion", "decoder")]
    (chat, text) = (
        [tune(run, rows, rows, task=task, name=task, **FAST) for run in runs]
        for task, rows in (("chat", CHATS), ("text_to_text", TRAIN[:12]))
    )
    for each, is_bound in zip(chat, (True, False), strict=True):
        shown = {row[""]: "at most" in row["perplexity"] for row in each.tables()[0].rows}
        tuned = dict.fromkeys(("pretrained, full", "not tuned"), is_bound)
        assert shown == {**tuned, "unigrams of answers": False}
    chats, texts = ([each.out for each in found] for found in (chat, text))
    bound, against = "perplexity of masked diffusion is a bound", "do not compare"
    found = evaluate_tuned(chats, CHATS, **QUIET)
    assert [row.get("is_bound", False) for row in found.rows] == [True, False]
    shown = [row["perplexity"].startswith("at most ") for row in found.shown_rows()]
    assert shown == [True, False]
    assert any(note.startswith(bound) for note in found.notes)
    assert sum(against in note for note in found.notes) == 1
    again = tune(runs[0], CHATS, CHATS, task="chat", name="again", **FAST).out
    twice = evaluate_tuned([chats[0], again], CHATS, **QUIET)
    assert any("against" in note for note in twice.notes)
    assert not any(against in note for note in twice.notes)
    both = evaluate_tuned(texts, TRAIN[:12], **QUIET)
    assert [{"accuracy", "tokens"} & row.keys() for row in both.rows] == [{"accuracy"}] * 2
    assert any(note.startswith("tokens: left out") for note in both.notes)
    assert any("against" in note and "accuracy" in note for note in both.notes)
    # A bound above a baseline's perplexity says nothing of which is better.
    notes, of_exact = (
        json.loads((chat / "scores.json").read_text(encoding="utf-8"))["notes"] for chat in chats
    )
    assert not any("no better than" in note for note in notes)
    assert any("no better than" in note for note in of_exact)


def count_answers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return a list to which each report of answers so far, and of their total, will be added."""
    steps: list[tuple[int, int]] = []

    def noting(tuned: Any, examples: Any, advance: Any) -> ScoredExamples:
        return scored(tuned, examples, lambda done, total: steps.append((done, total)))

    monkeypatch.setattr("foreword.tuning.evaluate.scored", noting)
    return steps


def assert_all_answered(steps: list[tuple[int, int]]) -> None:
    done, totals = zip(*steps, strict=True)
    assert list(done) == sorted(done) and set(totals) == {done[-1]}


@pytest.mark.full
def test_written_answers_are_scored_as_fine_tuning_scores_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"task.metric": "answer"}
    run = make_run(tmp_path / "run", "encoder_decoder")
    result = tune(run, TRAIN, DEV, task="text_to_text", settings=settings, **FAST)
    monkeypatch.setattr("foreword.tuning.answers.WRITTEN_AT_ONCE", 5)  # all at once before
    steps = count_answers(monkeypatch)
    (row,) = evaluate_tuned(result.out, DEV, **QUIET).rows
    known = result.content["epochs"][0]
    assert row["exact_match"] == known["exact_match"]
    assert len(steps) == -(-len(DEV) // 5) > 1
    assert_all_answered(steps)


def test_mistakes_are_refused_in_one_line(
    run: Path, tuned: Path, files: Path, tmp_path: Path
) -> None:
    def refused(*words: str) -> str:
        with pytest.raises(UserError) as caught:
            evaluate_tuned(list(words), data, **QUIET)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    data: Any = files / "test.tsv"
    lengths = [(text, len(text)) for text, _ in TRAIN]
    regress = tune(run, lengths, lengths, task="regress", **FAST)
    assert "was pretrained and not fine-tuned" in refused(str(run))
    assert "different tasks: a: classify, data: regress" in refused(str(tuned), str(regress.out))
    assert "labelled examples" in refused_default(regress.out)
    constant = evaluate_tuned(regress.out, [(text, 1.0) for text, _ in TRAIN], **QUIET).notes
    assert "data: pearson, spearman undefined, since all predictions or all labels" in constant[1]
    data = [("the film", "splendid")]
    assert "splendid" in refused(str(tuned))
    data = tmp_path / "none.tsv"
    assert "none.tsv: No such file" in refused(str(tuned))
    (tmp_path / "empty.tsv").write_text("mark\tsaid\n\t\n", encoding="utf-8")
    data = tmp_path / "empty.tsv"
    assert "empty.tsv" in refused(str(tuned))


@pytest.mark.full
def test_models_that_read_other_examples_or_have_other_scores_are_refused(
    run: Path, tuned: Path, files: Path, tmp_path: Path
) -> None:
    other = tune(run, TRAIN, DEV[:40], name="other", **FAST).out
    columns = tmp_path / "both.jsonl"
    rows = [("said", "mark", "text", "label"), *((*a, *b) for a, b in zip(TRAIN, DEV, strict=True))]
    lines = [json.dumps(dict(zip(rows[0], row, strict=True))) for row in rows[1:]]
    columns.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(UserError, match="read other texts or labels, so their scores"):
        evaluate_tuned([tuned, other], columns, **QUIET)
    positive = {"task.positive": "good"}
    more = tune(run, TRAIN, DEV, name="positive", settings=positive, **FAST).out
    with pytest.raises(UserError, match="a has accuracy, macro F1, matthews, and positive has"):
        evaluate_tuned([tuned, more], files / "test.tsv", text="said", label="mark", **QUIET)


@pytest.mark.full
def test_results_never_replace_those_of_other_files_or_models(
    tuned: Path, scratch: Path, files: Path, tmp_path: Path
) -> None:
    twin = tmp_path / files.name / "test.tsv"
    twin.parent.mkdir()
    twin.write_bytes((files / "dev.tsv").read_bytes())
    saved = [
        evaluate_tuned(models, file, **QUIET).file
        for models in ([tuned], [tuned, scratch])
        for file in (files / "test.tsv", twin, files / "test.tsv")
    ]
    assert saved[0] == saved[2] and saved[3] == saved[5]
    assert len(set(saved)) == 4
    saved[0].write_text("{", encoding="utf-8")  # damaged; the new result goes elsewhere
    again = evaluate_tuned(tuned, files / "test.tsv", **QUIET).file
    assert again not in saved and saved[0].read_text(encoding="utf-8") == "{"


def test_the_text_it_was_scored_on_is_told_by_its_size(tuned: Path, files: Path) -> None:
    whole = (files / "dev.tsv").read_text(encoding="utf-8")
    (files / "dev.tsv").write_text("\n".join(whole.splitlines()[:9]), encoding="utf-8")
    try:
        assert "has 8 examples, and" in refused_default(tuned)
    finally:
        (files / "dev.tsv").write_text(whole, encoding="utf-8")


@pytest.mark.full
def test_prefixes_are_those_of_training_unless_given(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "encoder_decoder")
    made = []
    for name in ("one", "two"):
        file = tmp_path / f"{name}.tsv"
        lines = [f"{text}\t{label}" for text, label in TRAIN[:12]]
        file.write_text("\n".join(["text\tlabel", *lines]), encoding="utf-8")
        made.append(file)
    prefix = ["film: ", "day: "]
    both = tune(run, made, made, task="text_to_text", prefix=prefix, name="both", **FAST)
    (row,) = evaluate_tuned(both.out, **QUIET).rows
    assert row["tokens"] == pytest.approx(both.content["epochs"][0]["tokens"])
    with pytest.raises(UserError, match="was tuned with several; choose one of"):
        evaluate_tuned(both.out, made[0], **QUIET)
    assert evaluate_tuned(both.out, made[0], prefix="day: ", **QUIET).rows[0]["examples"] == 12
    tagged = tune(make_run(tmp_path / "encoder"), TAGGED, TAGGED, task="tag", **FAST)
    with pytest.raises(UserError, match="--prefix: is for texts; tag reads"):
        evaluate_tuned(tagged.out, TAGGED, prefix="day: ", **QUIET)


def refused_default(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        evaluate_tuned(folder, **QUIET)
    return str(caught.value)


@pytest.mark.full
def test_the_command_prints_and_compares(
    tuned: Path, scratch: Path, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate-tuned", str(tuned), str(scratch), "--data", str(files / "test.tsv")]
    assert command(words) == 0
    printed = capsys.readouterr()
    assert "a, b: scores on test.tsv" in printed.out and "a against b: accuracy" in printed.err
    assert command([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["model"] == "a"
    assert command(["evaluate", str(tuned)]) == 2
    assert f"'foreword evaluate-tuned {tuned}' scores on labelled text" in capsys.readouterr().err
    assert command(["evaluate", str(tuned), "--data", "a.tsv"]) == 2
    assert f"{tuned} --data a.tsv' scores on labelled text" in capsys.readouterr().err


def test_a_result_shows_itself(tuned: Path, files: Path) -> None:
    result = evaluate_tuned(tuned, files / "test.tsv", **QUIET)
    assert isinstance(result, TunedEvaluation)
    assert "macro F1" in repr(result) and "intervals: 95 %" in result._repr_html_()
