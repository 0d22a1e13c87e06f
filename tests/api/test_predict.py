"""`foreword.predict` and `foreword predict`: texts and files in, rows with predictions out."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foreword import predict, tune
from foreword.cli.main import run as command
from foreword.errors import UserError
from foreword.evaluation.decoding import generate
from foreword.evaluation.sampling import Sampling
from foreword.tables.read import read_table
from foreword.tuning import packed_examples, predict_table
from foreword.tuning.tuned_model import TunedModel, TunedWriter
from foreword.verbs._load import load
from tests.frames import Frame, Series
from tests.tuning.runs import make_run, reviews

FAST: dict[str, Any] = {
    "strategy": "full", "seeds": 1, "epochs": 1, "device": "cpu", "progress": False,
}  # fmt: skip
TRAIN = [(e.text, e.label) for e in reviews(40, 1)]
TEXTS = [e.text for e in reviews(30, 3)]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_run(tmp_path_factory.mktemp("predict") / "run")
    return tune(folder, TRAIN, TRAIN[:4], lr=3e-3, **FAST).out


@pytest.fixture(scope="module")
def model(tuned: Path) -> TunedModel:
    loaded = load(tuned, "cpu")
    assert isinstance(loaded, TunedModel)
    return loaded


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [row for _, row in read_table(path).rows()]


def table(path: Path, texts: list[str]) -> Path:
    lines = [f'"{text}",{n}' for n, text in enumerate(texts)]
    path.write_text("\n".join(["review,id", *lines]), encoding="utf-8")
    return path


def test_texts_are_predicted_as_the_loaded_model_does(tuned: Path) -> None:
    model = load(tuned, "cpu")
    assert isinstance(model, TunedModel)
    labels, shares = model.predict(TEXTS)
    result = predict(tuned, TEXTS, device="cpu", probabilities=True, progress=False)
    assert result.predictions == labels
    assert [row["text"] for row in result.rows] == TEXTS
    np.testing.assert_allclose([row["probability"] for row in result.rows], shares.max(1))
    np.testing.assert_allclose([row["probability_good"] for row in result.rows], shares[:, 1])
    assert "rows" in repr(result)


@pytest.mark.product(few=2)
@pytest.mark.parametrize("ending", ["jsonl", "csv", "tsv", "parquet", "csv.gz", "jsonl.zst"])
def test_a_file_keeps_its_columns_and_order(tuned: Path, tmp_path: Path, ending: str) -> None:
    source, out = table(tmp_path / "in.csv", TEXTS), tmp_path / f"out.{ending}"
    result = predict(tuned, source, out=out, text="review", device="cpu", progress=False)
    rows = rows_of(out)
    assert list(rows[0]) == ["review", "id", "prediction", "probability"]
    assert [row["review"] for row in rows] == TEXTS
    expected = predict(tuned, TEXTS, device="cpu", progress=False)
    assert [row["prediction"] for row in rows] == expected.predictions
    assert result.rows == []
    assert result.counts.rows == len(TEXTS)
    assert sum(result.counts.labels.values()) == len(TEXTS)
    with pytest.raises(UserError, match="already exists"):
        predict(tuned, source, out=out, text="review", device="cpu", progress=False)


def test_a_table_read_in_windows_gives_the_outputs_of_the_whole(
    tuned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_examples, "CHUNK", 4)
    monkeypatch.setattr(packed_examples, "WINDOW", 8)
    monkeypatch.setattr(predict_table, "WINDOW", 8)
    model = load(tuned, "cpu")
    assert isinstance(model, TunedModel)
    shares = model.predict(TEXTS)[1].max(axis=1)
    rows = predict(model, TEXTS, progress=False).rows
    assert [np.float32(row["probability"]) for row in rows] == shares.tolist()


def test_rows_that_are_wrong_keep_their_place(
    tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(predict_table, "WINDOW", 1)  # which then holds a wrong row alone
    file = tmp_path / "a.tsv"
    file.write_text("text\tid\n" + "".join(f"good\t{n}\n" for n in range(9)) + "bad\n", "utf-8")
    with pytest.raises(UserError, match=r"a.tsv:11: 1 column.*wrong: 1 of 10; --bad-rows 0.1 "):
        predict(tuned, file, device="cpu", progress=False)
    result = predict(tuned, file, bad_rows=0.1, device="cpu", progress=False)
    assert result.rows[-1] == {"text": "bad", "prediction": None, "probability": None}
    assert None not in result.predictions[:-1]
    assert (result.counts.rows, result.counts.empty, len(result.notes)) == (10, 0, 1)
    assert "1 of 10 rows cannot be used" in capsys.readouterr().err


def test_json_values_keep_their_types_in_parquet(tuned: Path, tmp_path: Path) -> None:
    rows = [
        {"text": "fine day", "n": 1, "x": 1, "ok": True, "mixed": 1},
        {"text": "grim day", "n": 2, "x": 0.5, "ok": False, "mixed": ["a"]},
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    predict(tuned, source, out=tmp_path / "out.parquet", device="cpu", progress=False)
    schema = pq.read_schema(tmp_path / "out.parquet")
    types = [str(schema.field(name).type) for name in ("n", "x", "ok", "mixed", "prediction")]
    assert types == ["int64", "double", "bool", "string", "string"]
    assert rows_of(tmp_path / "out.parquet")[1]["mixed"] == '["a"]'


def test_rows_without_text_keep_their_place_and_are_named(tuned: Path, tmp_path: Path) -> None:
    source = table(tmp_path / "in.csv", ["fine", " ", "grim " * 50])
    result = predict(tuned, source, text="review", device="cpu", progress=False)
    assert [label is None for label in result.predictions] == [False, True, False]
    assert result.notes == (f"1 row has no text, and no prediction: {source}:3",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": "nope"}, "no column 'nope'; its columns: text, prediction; choose one with"),
        ({"pair": "text"}, "tuned on single texts"),
        ({}, "has a column 'prediction' already"),
        ({"out": "out.txt"}, "tables are .tsv, .csv"),
    ],
)
def test_unfit_inputs_are_refused_before_predicting(
    arguments: dict[str, Any], message: str, tuned: Path, tmp_path: Path
) -> None:
    source = tmp_path / "in.tsv"
    source.write_text("text\tprediction\nfine\tx\n", encoding="utf-8")
    with pytest.raises(UserError, match=message):
        predict(tuned, source, device="cpu", progress=False, **arguments)


def test_a_broken_row_or_a_failure_leaves_no_file(
    tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "in.tsv"
    source.write_text("text\tn\n" + "fine\t1\n" * 9 + "no tab\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"in\.tsv:11: 1 column"):
        predict(tuned, source, out=tmp_path / "out.csv", device="cpu", progress=False)
    source.write_text("text\tn\n" + "fine\t1\n" * 9, encoding="utf-8")
    monkeypatch.setattr(predict_table, "WINDOW", 4)
    model = load(tuned, "cpu")
    assert isinstance(model, TunedModel)
    answer, calls = TunedModel.answer, []

    def failing(self: TunedModel, *given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return answer(self, *given, **named)

    monkeypatch.setattr(TunedModel, "answer", failing)
    with pytest.raises(KeyboardInterrupt):
        predict(model, source, out=tmp_path / "out.csv", progress=False)
    assert [file.name for file in tmp_path.iterdir()] == ["in.tsv"]


def test_a_line_break_in_a_cell_is_no_cell_of_tsv(tuned: Path, tmp_path: Path) -> None:
    source = table(tmp_path / "in.csv", ["fine\nday"])
    with pytest.raises(UserError, match=r"in\.csv:2: a cell has a tab or a line break"):
        predict(
            tuned, source, out=tmp_path / "out.tsv", text="review", device="cpu", progress=False
        )


def test_columns_and_second_texts_are_those_of_tuning(tmp_path: Path) -> None:
    source = tmp_path / "pairs.tsv"
    lines = [f"{text}\tthe {label} one\t{label}" for text, label in TRAIN]
    source.write_text("\n".join(["a\tb\tlabel", *lines]), encoding="utf-8")
    run = make_run(tmp_path / "run")
    out = tune(run, source, source, text="a", pair="b", **FAST).out
    result = predict(out, source, device="cpu", progress=False)
    pairs = [(text, f"the {label} one") for text, label in TRAIN]
    assert result.predictions == predict(out, pairs, device="cpu", progress=False).predictions
    with pytest.raises(UserError, match="tuned on pairs; the second texts are missing"):
        predict(out, TEXTS, device="cpu", progress=False)


def test_numbers_are_predicted(tmp_path: Path) -> None:
    numbers = [(text, str(len(text))) for text, _ in TRAIN]
    out = tune(make_run(tmp_path / "run"), numbers, numbers, task="regress", **FAST).out
    model = load(out, "cpu")
    assert isinstance(model, TunedModel)
    result = predict(model, TEXTS, progress=False)
    assert np.float32(result.predictions).tolist() == model.outputs(TEXTS)[:, 0].tolist()
    with pytest.raises(UserError, match=r"--probabilities: .* predict numbers"):
        predict(model, TEXTS, probabilities=True, progress=False)


@pytest.mark.full
def test_a_model_that_answers_in_text_writes_as_it_was_tuned(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "encoder_decoder")
    source = tmp_path / "train.tsv"
    lines = [f"{text}\t{label}" for text, label in TRAIN * 6]
    source.write_text("\n".join(["text\tlabel", *lines]), encoding="utf-8")
    words = {"task.words": ["bad=dull", "good=fine"]}
    how = {**FAST, "epochs": 6, "lr": 3e-3}
    out = tune(
        run, source, source, task="text_to_text", prefix="the film: ", settings=words, **how
    ).out
    model = load(out, "cpu")
    assert isinstance(model, TunedWriter)
    prompts = [f"the film: {text}" for text in TEXTS]
    greedy = Sampling(tokens=2, temperature=0.0)
    written = [one.text.strip() for one in generate(model.trained, prompts, greedy)]
    labels = {"dull": "bad", "fine": "good"}
    expected = [labels.get(text, text) for text in written]
    assert set(expected) <= {"bad", "good"}
    assert model.predict(TEXTS) == expected
    assert model.predict([TEXTS[0], ""]) == [expected[0], None]
    with pytest.raises(UserError, match="answer in text; use `predict`"):
        model.outputs(TEXTS)
    assert predict(out, TEXTS, device="cpu", progress=False).predictions == expected


def test_standard_input_is_a_text_per_line(
    tuned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = io.TextIOWrapper(io.BytesIO("fine day\n\nsehr schön\n".encode()))
    monkeypatch.setattr(sys, "stdin", lines)
    assert command(["predict", str(tuned), "-", "--device", "cpu"]) == 0
    captured = capsys.readouterr()
    rows = [json.loads(line) for line in captured.out.splitlines()]
    assert [row["text"] for row in rows] == ["fine day", "", "sehr schön"]
    assert rows[1]["prediction"] is None
    assert re.search(r"^3 rows; (bad|good): [12]", captured.err, re.MULTILINE)


@pytest.mark.parametrize("out", [[], ["--out", "out.csv"]])
def test_json_counts_the_labels(
    out: list[str], tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = table(tmp_path / "in.csv", TEXTS)
    to_file = [str(tmp_path / word) if word.endswith(".csv") else word for word in out]
    arguments = ["--text", "review", "--device", "cpu", "--json"]
    assert command(["predict", str(tuned), str(source), *to_file, *arguments]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["rows"] == sum(said["labels"].values()) == len(TEXTS)
    assert len(said.get("predictions", [])) == (0 if out else len(TEXTS))


@pytest.mark.parametrize("given", [Series(TEXTS), np.array(TEXTS), pa.array(TEXTS), iter(TEXTS)])
def test_columns_of_other_libraries_are_texts(given: Any, model: TunedModel) -> None:
    expected = predict(model, TEXTS, progress=False).rows
    assert predict(model, given, progress=False).rows == expected


def test_a_data_frame_is_a_table(model: TunedModel, tmp_path: Path) -> None:
    labels = predict(model, TEXTS, progress=False).predictions
    numbers = list(range(len(TEXTS)))
    rows = predict(model, Frame({"text": TEXTS, "n": numbers}), progress=False).rows
    assert [(row["n"], row["prediction"]) for row in rows] == list(enumerate(labels))
    out = tmp_path / "out.parquet"
    frame = Frame({"review": TEXTS, "n": numbers})
    predict(model, frame, text="review", out=out, progress=False)
    assert [row["prediction"] for row in rows_of(out)] == labels
    assert model.predict(Frame({"n": numbers, "text": TEXTS}))[0] == labels
    for call in (lambda: predict(model, frame, progress=False), lambda: model.predict(frame)):
        with pytest.raises(UserError, match="no column 'text'; its columns: review, n"):
            call()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"text": TEXTS}, "data: expected a list of texts, got a dict"),
        (["a", None], r"data\[1\]: expected a text, got None"),
        ([["a", "b"], "c"], r"data\[1\]: expected two texts, as data\[0\] has"),
        (["c", ("a", "b")], r"data\[1\]: expected a text, as data\[0\] is; got a pair"),
        ([("a", "b")], "tuned on single texts"),
        (None, "data: expected a list of texts, got None"),
        ({"a", "b"}, "data: a set has no order"),
    ],
)
def test_what_is_no_text_is_refused(data: Any, message: str, model: TunedModel) -> None:
    with pytest.raises(UserError, match=message):
        predict(model, data, progress=False)
    with pytest.raises(UserError, match=message.replace("data", "texts")):
        model.predict(data)


@pytest.mark.parametrize(
    ("data", "arguments", "message"),
    [
        (TEXTS, {"text": "a"}, "text, pair: data are texts"),
        (TEXTS, {"pair": "a"}, "text, pair: data are texts"),
        (TEXTS, {"columns": "a,b"}, "columns: names the columns of a file"),
        (TEXTS, {"out": 3}, "--out: expected a path, got 3"),
        (TEXTS, {"out": ""}, "--out: the path is empty"),
        (TEXTS, {"progress": None}, "progress: expected True, False or a display"),
        (TEXTS, {"device": "cuda"}, "device, precision: the model is loaded"),
        (Frame({"text": TEXTS}), {"columns": "a"}, "columns: names the columns of a file"),
    ],
)
def test_arguments_without_effect_or_of_a_wrong_type_are_refused(
    data: Any, arguments: dict[str, Any], message: str, model: TunedModel
) -> None:
    with pytest.raises(UserError, match=message):
        predict(model, data, **{"progress": False, **arguments})


def test_an_empty_text_has_no_label_in_either_function(model: TunedModel) -> None:
    texts = ["fine day", " ", "grim day"]
    labels, shares = model.predict(texts)
    assert labels == predict(model, texts, progress=False).predictions
    assert labels[1] is None
    assert np.isnan(shares).all(axis=1).tolist() == [False, True, False]
    assert model.predict([""])[0] == [None]
    assert model.predict([])[0] == []


@pytest.mark.parametrize("tuned", [None, 3, ["a"]])
def test_a_model_is_a_folder_or_what_load_returned(tuned: Any) -> None:
    with pytest.raises(UserError, match="TUNED: expected a path, got"):
        predict(tuned, TEXTS, progress=False)


def test_second_texts_are_a_list_of_texts(tmp_path: Path) -> None:
    pairs = [(text, label, f"the {label} one") for text, label in TRAIN]
    out = tune(make_run(tmp_path / "run"), pairs, pairs, **FAST).out
    model = load(out, "cpu")
    assert isinstance(model, TunedModel)
    for second, message in [
        ("cd", "pairs: expected a list of texts, got one text"),
        (["c", None], r"pairs\[1\]: expected a text, got None"),
        (["c"], "2 texts, but 1 second texts"),
        (None, "tuned on pairs; the second texts are missing"),
    ]:
        with pytest.raises(UserError, match=message):
            model.predict(["a", "b"], second)
    seconds = Series(["a", "b"])
    apart = model.predict(["fine", "grim"], seconds)[0]
    assert model.predict(list(zip(["fine", "grim"], seconds, strict=True)))[0] == apart


def test_a_loaded_model_has_a_short_repr(model: TunedModel) -> None:
    assert repr(model) == f"<classify, 2 labels, {model.source}>"


def test_a_model_that_was_not_tuned_is_refused(tuned: Path) -> None:
    with pytest.raises(UserError, match="was pretrained and not fine-tuned; 'foreword tune"):
        predict(tuned.parents[1], TEXTS, progress=False)
