"""The files of a suite's tasks, and its table."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foreword.errors import UserError
from foreword.settings import config
from foreword.suites.examples import read_examples, read_unlabelled
from foreword.suites.suite import (
    FoundFiles,
    Published,
    SuiteTask,
    TuningSuite,
    find_files,
    load_suite,
)
from foreword.suites.table import (
    cells_in_percent,
    in_percent,
    run_rows,
    run_signals,
    score_rows,
    with_average,
)
from foreword.tables.columns import Columns
from foreword.tables.examples import Labelled
from foreword.tuning.tasks._contract import Task
from foreword.tuning.tasks.chat import Chat
from foreword.tuning.tasks.regress import Regress
from foreword.tuning.tasks.text_to_text import TextToText
from tests.tuning.glue import write
from tests.tuning.runs import reviews

GLUE = load_suite("glue")
NAMES = [task.name for task in GLUE.tasks]


def task_of(name: str) -> SuiteTask:
    return next(task for task in GLUE.tasks if task.name == name)


def read(task: SuiteTask, files: Sequence[Path]) -> tuple[Sequence[Labelled], int]:
    examples, _ = read_examples(task, {"train": files}, 0.0)
    return examples.train, examples.skipped


def found(folder: Path, name: str) -> FoundFiles:
    files = find_files(task_of(name), folder)
    assert isinstance(files, FoundFiles)
    return files


@pytest.mark.parametrize("name", NAMES)
def test_every_original_file_is_read_with_all_its_rows(name: str, tmp_path: Path) -> None:
    write(tmp_path, name)
    task, files = task_of(name), found(tmp_path, name)
    texts = [e.text for e in reviews(40, 1)]
    examples, skipped = read(task, files.train)
    assert skipped == 0
    quote = '"' if name == "CoLA" else ""
    assert [e.text.strip() for e in examples] == [quote + text for text in texts]
    is_pair = name not in ("CoLA", "SST-2")
    assert examples[1].pair == (texts[0] if is_pair else None)
    if task.labels:
        assert {e.label for e in examples} == set(task.labels)
    else:
        assert {e.label for e in examples} == {"0.0", "4.5"}
    # The test files have numbers and texts, no labels.
    for test in files.test.values():
        rows = list(read_unlabelled(task, test))
        assert [index for index, _ in rows] == ["0", "1", "2", "3"]
        assert all(e is not None and not e.label and bool(e.pair) == is_pair for _, e in rows)


def test_mnli_has_two_dev_sets_and_two_submissions(tmp_path: Path) -> None:
    place = write(tmp_path, "MNLI")
    files = found(tmp_path, "MNLI")
    assert list(files.dev) == ["MNLI-m", "MNLI-mm"]
    assert list(files.test) == ["MNLI-m", "MNLI-mm"]
    assert files.missing == ("diagnostic/diagnostic",)
    (place / "dev_mismatched.tsv").unlink()
    files = found(tmp_path, "MNLI")
    assert list(files.dev) == ["MNLI-m"]
    assert "MNLI/dev_mismatched" in files.missing


def test_cola_as_its_authors_publish_it_has_two_dev_files(tmp_path: Path) -> None:
    place = write(tmp_path, "CoLA")
    (place / "train.tsv").rename(place / "in_domain_train.tsv")
    (place / "dev.tsv").rename(place / "in_domain_dev.tsv")
    assert find_files(task_of("CoLA"), tmp_path) == ("CoLA/out_of_domain_dev",)
    (place / "out_of_domain_dev.tsv").write_text("x\t1\t\tthe day\n", encoding="utf-8")
    examples, _ = read(task_of("CoLA"), found(tmp_path, "CoLA").dev["CoLA"])
    assert len(examples) == 13
    assert examples[12][:2] == ("the day", "1")


def test_cola_with_a_header_is_read_by_its_names(tmp_path: Path) -> None:
    (tmp_path / "CoLA").mkdir()
    file = tmp_path / "CoLA" / "train.csv"
    file.write_text('idx,sentence,label\n0,"a, day",1\n', encoding="utf-8")
    examples, _ = read(task_of("CoLA"), [file])
    assert [e[:2] for e in examples] == [("a, day", "1")]


def test_mrpc_as_microsoft_publishes_it_is_text_files(tmp_path: Path) -> None:
    place = write(tmp_path, "MRPC")
    for name in ("train", "test"):
        (place / f"{name}.tsv").unlink()
    dev = (place / "dev.tsv").read_text(encoding="utf-8")
    for name in ("train", "test"):
        (place / f"msr_paraphrase_{name}.txt").write_text(dev, encoding="utf-8")
    files = found(tmp_path, "MRPC")
    assert [file.name for file in files.train] == ["msr_paraphrase_train.txt"]
    assert len(read(task_of("MRPC"), files.train)[0]) == 12


def test_labels_may_be_numbers_of_labels_and_none_is_minus_one(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    rows = [
        {"premise": "a", "hypothesis": "b", "label": 2},
        {"premise": "c", "hypothesis": "d", "label": -1},
        {"premise": "e", "hypothesis": "f", "label": "neutral"},
        {"premise": "g", "hypothesis": "h", "label": "-"},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    examples, skipped = read(task_of("MNLI"), [file])
    assert [(e.text, e.pair, e.label) for e in examples] == [
        ("a", "b", "contradiction"),
        ("e", "f", "neutral"),
    ]
    assert skipped == 2


def test_rows_of_qqp_with_a_broken_line_or_an_empty_question_are_counted(tmp_path: Path) -> None:
    file = write(tmp_path, "QQP") / "train.tsv"
    with file.open("a", encoding="utf-8") as lines:
        lines.write("9\t1\t2\tbroken\nin two\tand more\t1\n10\t1\t2\t\tempty\t0\n")
    examples, skipped = read(task_of("QQP"), [file])
    assert (len(examples), skipped) == (40, 3)


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("RTE", "\tentailment", "\tyes", r"train\.tsv:\d+: label 'yes'; RTE has: entailment, not"),
        ("SST-2", "\t1", "\t2", r"train\.tsv:\d+: label '2'; SST-2 has: 0, 1"),
        ("STS-B", "\t4.5", "\t5.5", r"train\.tsv:\d+: 5\.5 is out of range; STS-B has numbers fr"),
        ("STS-B", "\t4.5", "\tnan", r"train\.tsv:\d+: 'nan' is not a number"),
        ("RTE", "sentence2", "second", r"RTE has the columns 'sentence1', 'sentence2', 'label'; t"),
        ("QNLI", "\tlabel", "\tgold", r"QNLI has the columns 'question', 'sentence', 'label'"),
        (
            "RTE",
            "\tnot_entailment",
            "",
            r"train\.tsv:\d+: 3 columns, and 4 columns named in the header",
        ),
        ("CoLA", "gj04\t1\t", "gj04\t", r"train\.tsv:\d+: 3 columns, and 4 columns named"),
    ],
)
def test_broken_files_are_refused_in_one_line(
    name: str, old: str, new: str, message: str, tmp_path: Path
) -> None:
    file = write(tmp_path, name) / "train.tsv"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(UserError, match=message) as caught:
        read(task_of(name), [file])
    assert "\n" not in str(caught.value)


def test_rows_without_a_label_are_counted(tmp_path: Path) -> None:
    file = write(tmp_path, "WNLI") / "train.tsv"
    file.write_text(file.read_text(encoding="utf-8").replace("\t1\n", "\t\n"), encoding="utf-8")
    assert read(task_of("WNLI"), [file])[1] == 20


def test_a_quote_that_never_closes_is_refused_in_csv_alone(tmp_path: Path) -> None:
    file = tmp_path / "train.csv"
    file.write_text('sentence,label\n"a day,1\nb,0\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"train\.csv:\d: a quote begins in this row and never"):
        read(task_of("SST-2"), [file])


def test_a_suite_of_ones_own_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        """
        [[tasks]]
        name = "mood"
        metrics = ["accuracy", "f1"]
        columns = [{ text = "comment", label = "mood" }]
        layouts = [{ train = ["train"], dev = [{ files = ["dev"] }] }]
        """,
        encoding="utf-8",
    )
    (task,) = load_suite(str(tmp_path / "mine.toml")).tasks
    (tmp_path / "train.csv").write_text("comment,mood\nfine,good\n", encoding="utf-8")
    assert read(task, [tmp_path / "train.csv"])[0][0] == Labelled(
        "fine", "good", None, f"{tmp_path}/train.csv:2"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": [{"name": "a", "metrics": []}]}, r"tasks\[0\]\.layouts: is needed"),
        ({"tasks": [{"name": "a/b", "metrics": ["f1"]}]}, "name: must be a name, not a path"),
        ({"tasks": [{"name": "a", "metrics": ["f1"], "range": [1.0]}]}, "range: must be the least"),
        ({"tasks": [{"name": "a", "metrics": ["f1"]}] * 2}, "tasks: two are called 'a'"),
        ({"rate_factors": [0.0]}, "rate_factors"),
        ({"tasks": [{"name": "a", "metrics": ["f1"], "tune": {"sed": 1}}]}, "tune.sed: no such"),
        ({"tasks": [{"name": "a", "metrics": ["f1"], "tune": 1}]}, "tune: must be a table"),
    ],
)
def test_mistakes_in_a_suite_are_named(change: dict[str, Any], message: str) -> None:
    layouts = [{"train": ["train"], "dev": [{"files": ["dev"]}]}]
    tasks = change.get("tasks", [{"name": "a", "metrics": ["f1"]}])
    if "is needed" not in message:
        tasks = [task | {"layouts": layouts} for task in tasks]
    with pytest.raises(UserError, match=message):
        config.build(TuningSuite, change | {"tasks": tasks})


@pytest.mark.parametrize(
    ("file", "text", "label"),
    [
        ("ewt/train.conllu", "1\tDogs\tdog\tNOUN\tNNS\t_\t2\tnsubj\t_\t_\n\n", "NOUN"),
        ("wnut17/train.conll", "Ann\tB-person\n\n", "B-person"),
    ],
)
def test_a_task_reads_the_formats_and_columns_of_its_kind(
    file: str, text: str, label: str, tmp_path: Path
) -> None:
    for name in (file, file.replace("train", "dev")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (task,) = (one for one in load_suite("early").tasks if one.name.lower() in file)
    files = find_files(task, tmp_path)
    assert isinstance(files, FoundFiles)
    (example,), _ = read(task, files.train)
    assert example.label == label


def test_tasks_are_chosen_by_name_in_any_case() -> None:
    assert [task.name for task in GLUE.choose(["rte", "CoLA"])] == ["CoLA", "RTE"]
    with pytest.raises(UserError, match="--tasks: no task 'RT'; did you mean 'RTE'"):
        GLUE.choose(["RT"])


def test_published_scores_are_of_known_tasks_and_metrics() -> None:
    names = {task.name: task for task in GLUE.tasks}
    names |= {"MNLI-m": names["MNLI"], "MNLI-mm": names["MNLI"]}
    for published in GLUE.published:
        for name, scores in published.scores.items():
            assert set(scores) <= set(names[name].metrics)
            assert all(0 <= score <= 100 for score in scores.values())


def content(**scores: float) -> dict[str, Any]:
    ours = {"start": "pretrained", "strategy": "full", "seeds": 2, "lr": 1e-4}
    baseline = {"start": "no model", "strategy": "majority class"}
    return {"rows": [ours | scores, baseline | dict.fromkeys(scores, 0.5)]}


def test_the_table_has_published_scores_in_the_same_row() -> None:
    scores = {"accuracy": 0.61234, "accuracy_std": 0.0123, "MNLI-mm_accuracy": 0.6}
    rows = score_rows(GLUE, task_of("MNLI"), content(**scores), ["MNLI-m", "MNLI-mm"])
    assert [(row["task"], row["metric"], row["this model"]) for row in rows] == [
        ("MNLI-m", "accuracy", 0.61234),
        ("MNLI-mm", "accuracy", 0.6),
    ]
    assert in_percent(rows[0], "this model") == "61.2 ± 1.2"
    assert in_percent(rows[0], "BERT-base (test)") == "84.6"
    assert in_percent(rows[1], "ELECTRA-small (dev)") == "–"


def test_the_average_counts_each_task_once_and_leaves_no_gap_out_in_silence() -> None:
    rows = [
        *score_rows(GLUE, task_of("RTE"), content(accuracy=0.6), ["RTE"]),
        *score_rows(GLUE, task_of("MRPC"), content(positive_f1=0.8, accuracy=0.7), ["MRPC"]),
        *score_rows(
            GLUE,
            task_of("MNLI"),
            content(**{"accuracy": 0.4, "MNLI-mm_accuracy": 0.5}),
            ["MNLI-m", "MNLI-mm"],
        ),
    ]
    tasks = {"RTE": ["RTE"], "MRPC": ["MRPC"], "MNLI": ["MNLI-m", "MNLI-mm"]}
    average = with_average(rows, tasks)[-1]
    assert average["this model"] == pytest.approx((0.6 + 0.75 + 0.45) / 3)
    assert average["BERT-base (test)"] == pytest.approx((0.664 + 0.889 + 0.84) / 3)
    without = replace(GLUE.published[0], scores={"RTE": {"accuracy": 66.4}})
    suite = replace(GLUE, published=(without,))
    rows = [
        *score_rows(suite, task_of("RTE"), content(accuracy=0.6), ["RTE"]),
        *score_rows(suite, task_of("MRPC"), content(positive_f1=0.8, accuracy=0.7), ["MRPC"]),
    ]
    average = with_average(rows, {"RTE": ["RTE"], "MRPC": ["MRPC"]})[-1]
    assert average["BERT-base (test)"] is None


@pytest.mark.parametrize("undefined", [math.nan, None], ids=["of this call", "read from a file"])
def test_an_undefined_score_is_a_dash_and_so_is_the_average(undefined: Any) -> None:
    scores = {"pearson": undefined, "spearman": 0.5}
    rows = [
        *score_rows(GLUE, task_of("STS-B"), content(**scores), ["STS-B"]),
        *score_rows(GLUE, task_of("RTE"), content(accuracy=0.6), ["RTE"]),
    ]
    table = with_average(rows, {"STS-B": ["STS-B"], "RTE": ["RTE"]})
    shown = [in_percent(row, "this model") for row in table]
    assert shown == ["–", "50.0", "60.0", "–"]


def test_runs_stand_in_rows_with_standard_errors_and_a_mean_of_standardised_scores() -> None:
    def of(accuracy: float, rmse: float | None) -> list[dict[str, Any]]:
        about = {"this model_std": 0.02, "seeds": 4}
        return [
            {"task": "A", "metric": "accuracy", "this model": accuracy, "is_gain": True, **about},
            {"task": "B", "metric": "rmse", "this model": rmse, "is_gain": False, **about},
            {"task": "average", "metric": "", "this model": 0.1, "is_gain": None},
        ]

    rows = run_rows({"x": of(0.6, 0.5), "y": of(0.8, 0.3)}, {"x": 4.1, "y": None})
    assert [(row["run"], row["loss"], row["A accuracy"]) for row in rows] == [
        ("x", 4.1, 0.6),
        ("y", None, 0.8),
    ]
    assert rows[0]["A accuracy_se"] == pytest.approx(0.01)
    # Each score is 1 / sqrt(2) deviations from the mean of both, of 0.2 / sqrt(2) between them.
    assert [row["standardised"] for row in rows] == pytest.approx([-(0.5**0.5), 0.5**0.5])
    error = 0.01 / (0.2 / 2**0.5)
    assert rows[0]["standardised_se"] == pytest.approx(error * 2**0.5 / 2)
    found = run_signals({"x": of(0.6, 0.5), "y": of(0.8, 0.3)})
    assert {n: one and round(one.ratio, 2) for n, one in found.items()} == {
        "A accuracy": 14.14,  # 0.2 / sqrt(2) over 0.02 / sqrt(4)
        "B rmse": 14.14,
    }
    # A score that one lacks is not in the mean; one run has none.
    rows = run_rows({"x": of(0.6, None), "y": of(0.8, 0.3)}, {"x": 4.1, "y": 4.0})
    assert rows[0]["standardised"] == pytest.approx(-(0.5**0.5))
    assert "standardised" not in run_rows({"x": of(0.6, 0.5)}, {"x": 4.1})[0]


@pytest.mark.parametrize("scores", [3, {"RTE": 66.4}])
def test_published_scores_of_another_form_are_refused(scores: object) -> None:
    with pytest.raises(ValueError, match="scores: expected numbers by task and metric"):
        Published("a", "b", scores=scores)


def test_a_metric_that_is_no_score_of_the_task_is_refused_with_the_suite() -> None:
    with pytest.raises(ValueError, match="metrics: 'f2' is not a score of this task: accuracy, f1"):
        replace(task_of("RTE"), metrics=("accuracy", "f2"))


def test_a_metric_without_a_score_is_named() -> None:
    with pytest.raises(UserError, match="metrics: 'accuracy' is not a score of RTE: matthews"):
        score_rows(GLUE, task_of("RTE"), content(matthews=0.6), ["RTE"])


def test_a_task_without_labels_may_be_in_a_suite(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    roles = [{"role": role, "content": "hi"} for role in ("user", "assistant")]
    file.write_text(json.dumps({"messages": roles}), encoding="utf-8")
    columns = (Columns("messages", "", ""),)
    task = replace(
        task_of("RTE"), name="talk", task=Chat(), metrics=("tokens",), columns=columns, labels=()
    )
    examples, skipped = read(task, [file])
    assert (len(examples), skipped) == (1, 0)


def test_a_perplexity_is_neither_a_percentage_nor_in_an_average() -> None:
    task = replace(task_of("RTE"), name="talk", task=Chat(), metrics=("perplexity",))
    published = Published("GPT", "a paper", scores={"talk": {"perplexity": 31.5}})
    suite = replace(GLUE, published=(published,))
    rows = score_rows(suite, task, content(perplexity=40.0, perplexity_std=2.0), ["talk"])
    assert in_percent(rows[0], "this model") == "40.0 ± 2.0"
    assert in_percent(rows[0], "GPT (test)") == "31.5"
    both = [*rows, *score_rows(suite, task_of("RTE"), content(accuracy=0.6), ["RTE"])]
    assert len(with_average(both, {"talk": ["talk"], "RTE": ["RTE"]})) == 2


@pytest.mark.parametrize(
    ("kind", "metric"),
    [(TextToText(metric="bleu"), "bleu"), (TextToText(metric="bleu"), "chrf"), (Regress(), "mae")],
)
def test_a_score_that_is_not_a_share_is_shown_as_it_is(kind: Task, metric: str) -> None:
    task = replace(task_of("RTE"), name="wmt", task=kind, metrics=(metric,), labels=())
    suite = replace(GLUE, published=(Published("T5", "a paper", scores={"wmt": {metric: 28.4}}),))
    rows = score_rows(suite, task, content(**{metric: 31.25}), ["wmt"])
    assert in_percent(rows[0], "this model") == "31.2"
    assert in_percent(rows[0], "T5 (test)") == "28.4"
    both = [*rows, *score_rows(suite, task_of("RTE"), content(accuracy=0.6), ["RTE"])]
    assert len(with_average(both, {"wmt": ["wmt"], "RTE": ["RTE"]})) == 2
    assert "is_share" not in cells_in_percent(with_average(both, {}))[0]
