"""`foreword tune-suite`: a model on the tasks of a folder, resumed, tabulated, predicted."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest

import foreword
from foreword.cli.main import run
from foreword.errors import TrainingStoppedError
from foreword.suites import run as suite_run
from foreword.tuning.job import TuneJob
from tests.cli.conftest import Refused
from tests.tuning.glue import write
from tests.tuning.runs import make_run

FAST = ["--epochs", "1", "--seeds", "2", "--device", "cpu", "--lr", "1e-3"]


@pytest.fixture
def glue(tmp_path: Path) -> Path:
    for task in ("CoLA", "RTE", "STS-B"):
        write(tmp_path / "glue", task)
    return tmp_path / "glue"


@pytest.fixture
def words(tmp_path: Path, glue: Path) -> list[str]:
    folder = make_run(tmp_path / "run")
    return ["tune-suite", str(folder), "glue", "--data", str(glue), *FAST]


def test_a_suite_gives_one_table_and_the_files_of_a_submission(
    tmp_path: Path, words: list[str], glue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 0
    captured = capsys.readouterr()
    for text in (
        "Fine-tuning: glue",
        "CoLA",
        "matthews",
        "spearman",
        "average",
        "BERT-tiny",
        "52.1",
    ):
        assert text in captured.out
    assert "left out, since files are not there: SST-2 (SST-2/train, SST-2/dev); " in captured.err
    run_folder = tmp_path / "run"
    table = json.loads((run_folder / "evaluations" / "tune-suite-glue.json").read_text())
    assert [(row["task"], row["metric"]) for row in table["rows"]] == [
        ("CoLA", "matthews"),
        ("STS-B", "pearson"),
        ("STS-B", "spearman"),
        ("RTE", "accuracy"),
        ("average", ""),
    ]
    rte = table["rows"][3]
    assert rte["baseline"] == 0.5
    assert 0 <= rte["bag of words"] <= 1
    assert rte["BERT-base (test)"] == pytest.approx(0.664)
    assert rte["this model_std"] is not None
    assert sorted(table["tasks"]) == ["CoLA", "RTE", "STS-B"]
    # The predictions are in the form that GLUE takes, by the saved models.
    submission = run_folder / "tuned" / "glue" / "submission"
    for name, labels in (("RTE", {"entailment", "not_entailment"}), ("CoLA", {"0", "1"})):
        head, *lines = (submission / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
        assert head == "index\tprediction"
        assert [line.split("\t")[0] for line in lines] == ["0", "1", "2", "3"]
        assert {line.split("\t")[1] for line in lines} <= labels
    numbers = (submission / "STS-B.tsv").read_text(encoding="utf-8").split()[3::2]
    assert all(0 <= float(number) <= 5 and len(number) == 5 for number in numbers)
    tuned = foreword.load(run_folder / "tuned" / "glue" / "RTE", "cpu")
    test = (glue / "RTE" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]
    pairs = [tuple(line.split("\t")[1:]) for line in test]
    written = (submission / "RTE.tsv").read_text(encoding="utf-8").split()[3::2]
    assert tuned.predict(pairs)[0] == written  # type: ignore[union-attr]
    # The report shows the table.
    assert run(["report", str(run_folder)]) == 0
    page = (run_folder / "report.html").read_text(encoding="utf-8")
    assert "Fine-tuning: glue" in page
    assert "BERT-base (test)" in page


def test_several_runs_are_tuned_as_the_suite_says_and_stand_in_one_table(
    tmp_path: Path, glue: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    runs = [str(make_run(tmp_path / name, layers=n)) for n, name in enumerate("ab", 1)]
    log = '{"kind": "heldout", "step": %d, "loss": %g}\n'
    (tmp_path / "a" / "metrics.jsonl").write_text(log % (1, 4.5) + log % (2, 4.0))
    suite = tmp_path / "few.toml"
    tune = '{ strategy = { kind = "frozen", lr = 2e-3 }, examples = 20, seeds = 2, epochs = 1 }'
    suite.write_text(
        "[[tasks]]\n"
        'name = "RTE"\nmetrics = ["accuracy"]\n'
        'columns = [{ text = "sentence1", pair = "sentence2" }]\n'
        'layouts = [{ train = ["RTE/train"], dev = [{ files = ["RTE/dev"] }] }]\n'
        f"tune = {tune}\n"
    )
    words = ["tune-suite", *runs, str(suite), "--data", str(glue), "--device", "cpu"]
    assert run([*words, "--seeds", "3", "--table", str(tmp_path / "t.csv"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["run"], row["loss"]) for row in rows] == [("a", 4.5), ("b", None)]
    assert rows[0]["standardised"] == pytest.approx(-rows[1]["standardised"])
    head, *lines = (tmp_path / "t.csv").read_text().splitlines()
    assert head == "run,loss,RTE accuracy,RTE accuracy_se,standardised,standardised_se"
    assert [line.split(",")[0] for line in lines] == ["a", "b"]
    content = json.loads((tmp_path / "b/evaluations/few/RTE.json").read_text())
    used = {name: content["settings"][name] for name in ("examples", "seeds", "epochs", "batch")}
    assert used == {"examples": 20, "seeds": 3, "epochs": 1, "batch": 16}, "seeds are the call's"
    assert content["settings"]["strategy"] == {"kind": "frozen", "lr": 2e-3}
    assert "--out: is for one run" in refused(*words, "--out", str(tmp_path / "out"))


@pytest.mark.full
def test_a_suite_that_was_killed_continues_with_what_is_not_done(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    held: list[int] = []
    tune_and_save = suite_run.tune_and_save

    def killed(trained: Any, wanted: Any, *rest: Any) -> Any:
        held.append(sum(isinstance(one, TuneJob) for one in gc.get_objects()))
        if wanted.name == "RTE" and "RTE" not in done:
            done.append("RTE")
            raise KeyboardInterrupt
        done.append(wanted.name)
        return tune_and_save(trained, wanted, *rest)

    monkeypatch.setattr(suite_run, "tune_and_save", killed)
    assert run(words) == 130
    assert held == [1, 1, 1], "the examples of one task are in memory"
    file = tmp_path / "run" / "evaluations" / "tune-suite-glue.json"
    assert sorted(json.loads(file.read_text())["tasks"]) == ["CoLA", "STS-B"]
    assert run(words) == 0
    assert done == ["CoLA", "STS-B", "RTE", "RTE"]
    assert sorted(json.loads(file.read_text())["tasks"]) == ["CoLA", "RTE", "STS-B"]


@pytest.mark.full
def test_tasks_of_two_calls_are_in_one_table_and_other_settings_are_refused(
    tmp_path: Path,
    words: list[str],
    glue: Path,
    capsys: pytest.CaptureFixture[str],
    refused: Refused,
) -> None:
    assert run([*words, "--tasks", "rte", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 1
    assert run([*words, "--tasks", "CoLA", "--json"]) == 0
    tasks = [row["task"] for row in json.loads(capsys.readouterr().out)["rows"]]
    assert tasks == ["CoLA", "RTE", "average"]
    assert "already exists, of another model or other settings; choose" in refused(
        *words, "--epochs", "2"
    )
    # Other examples of a task are another result too.
    text = (glue / "RTE" / "train.tsv").read_text(encoding="utf-8")
    (glue / "RTE" / "train.tsv").write_text(text.replace("film", "town"), encoding="utf-8")
    assert "RTE.json: already exists; choose another --name" in refused(*words, "--tasks", "RTE")


@pytest.mark.full
def test_a_new_test_file_is_predicted_anew(tmp_path: Path, words: list[str], glue: Path) -> None:
    assert run([*words, "--tasks", "RTE"]) == 0
    file = tmp_path / "run" / "tuned" / "glue" / "submission" / "RTE.tsv"
    before = file.stat().st_mtime_ns
    assert run([*words, "--tasks", "RTE"]) == 0
    assert file.stat().st_mtime_ns == before
    with (glue / "RTE" / "test.tsv").open("a", encoding="utf-8") as lines:
        lines.write("4\tthe day was fine\t\n")  # without a second text, but with a prediction
    assert run([*words, "--tasks", "RTE"]) == 0
    assert file.read_text(encoding="utf-8").splitlines()[-1] == "4\tentailment"


@pytest.mark.full
def test_a_task_whose_seeds_all_diverge_is_named_and_the_others_are_done(
    tmp_path: Path,
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tune_and_save = suite_run.tune_and_save

    def diverging(trained: Any, wanted: Any, *rest: Any) -> Any:
        if wanted.name == "CoLA":
            raise TrainingStoppedError("the loss is not finite")
        return tune_and_save(trained, wanted, *rest)

    monkeypatch.setattr(suite_run, "tune_and_save", diverging)
    assert run([*words, "--tasks", "CoLA,RTE"]) == 2
    captured = capsys.readouterr()
    assert "CoLA: the loss is not finite" in captured.err
    assert "RTE" in captured.out


@pytest.mark.full
def test_rates_are_chosen_on_training_examples_or_on_dev_and_this_is_said(
    tmp_path: Path, words: list[str], glue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = glue / "RTE"
    rows = (place / "train.tsv").read_text(encoding="utf-8").splitlines()
    more = [f"{line} " for line in rows[1:]] * 2
    (place / "train.tsv").write_text("\n".join([*rows, *more]), encoding="utf-8")
    one = [word for word in words if word not in ("--lr", "1e-3")]
    assert run([*one, "--tasks", "RTE", "--name", "a"]) == 0
    err = " ".join(capsys.readouterr().err.split())
    assert "RTE: learning rate" in err
    assert "chosen by accuracy on 12 training examples held out: 0.0005 (" in err
    assert run([*words, "--lr", "2e-3", "--choose", "dev", "--tasks", "RTE", "--name", "b"]) == 0
    err = " ".join(capsys.readouterr().err.split())
    assert "chosen by accuracy on the dev examples themselves" in err
    file = tmp_path / "run" / "evaluations" / "b" / "RTE.json"
    rate = json.loads(file.read_text(encoding="utf-8"))["rate"]
    assert [trial["lr"] for trial in rate["trials"]] == [1e-3, 2e-3]


@pytest.mark.full
def test_a_rate_among_the_settings_is_tried_alone_and_recorded(
    tmp_path: Path, words: list[str], refused: Refused
) -> None:
    one = [word for word in words if word not in ("--lr", "1e-3")]
    one += ["--tasks", "RTE", "--set", "tune.strategy.lr=2e-3"]
    assert run(one) == 0  # without the 100 examples that a choice needs
    table = json.loads((tmp_path / "run/evaluations/tune-suite-glue.json").read_text())
    assert [row["lr"] for row in table["rows"]] == [2e-3]
    assert table["settings"]["tune"]["strategy"] == {"kind": "full", "lr": 2e-3}
    assert "already exists, of another model or other settings" in refused(
        *one, "--set", "tune.strategy.lr=1e-3"
    )


@pytest.mark.product(few=4)
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--tasks", "RTE,QQP"], "files are missing: QQP (QQP/train, QQP/dev)"),
        (["--tasks", "RT"], "--tasks: no task 'RT'; did you mean 'RTE'?"),
        (["--data", "nowhere"], "--data: nowhere: no such folder"),
        (["--choose", "test"], "--choose: 'test' is not a choice; choose from: train, dev"),
        (["--lr", "1e-3"], "--lr: the same rate twice"),
        (["--lr", "2e-3"], "--lr: 40 training examples are too few to choose a learning rate"),
        (["--set", "task.positive=2"], "task.positive: "),
        (["--name", "a/b"], "a name, not a path"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    tmp_path: Path,
    words: list[str],
    more: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([*words, *more]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert message in error
    assert not list((tmp_path / "run").glob("evaluations/**/*.json"))
    assert not list((tmp_path / "run").glob("tuned/glue/*"))


def test_a_suite_has_a_command_of_its_own(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for line, message in (
        (
            ["tune", "RUN", "--data", "x", "--suite", "glue"],
            "'foreword tune-suite RUN SUITE --data",
        ),
        (
            ["tune", "RUN", "--suite=glue"],
            "--suite: now 'foreword tune-suite RUN SUITE --data DIR'",
        ),
        (["tune-suite", *words[1:2], "gleu", *words[3:]], "no suite 'gleu', neither a .toml file"),
        (["tune-suite", "RUN", "glue"], "Missing option '--data'"),
    ):
        assert run(line) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1


def test_a_folder_without_any_task_is_refused_by_the_files_it_lacks(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    words[words.index("--data") + 1] = str(tmp_path / "empty")
    assert run(words) == 2
    assert (
        "no task of the suite; it has no CoLA (CoLA/train, CoLA/dev); " in capsys.readouterr().err
    )


def test_a_broken_file_of_the_last_task_is_found_before_the_first_is_trained(
    tmp_path: Path, words: list[str], glue: Path, refused: Refused
) -> None:
    with (glue / "RTE" / "dev.tsv").open("a", encoding="utf-8") as lines:
        lines.write("99\ta\tb\tmaybe\n")
    assert "RTE/dev.tsv:14: label 'maybe'; RTE has: entailment, not_" in refused(*words)
    assert not (tmp_path / "run" / "tuned").exists()


def test_a_model_without_gradients_is_refused(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the day was fine and the town was cold. " * 40, encoding="utf-8")
    counts = str(tmp_path / "counts")
    assert run(["pretrain", "ngram_1", "--data", str(text), "--out", counts, "--heldout", "0"]) == 0
    words[1] = counts
    capsys.readouterr()
    assert run(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "gradients" in line or "fine-tun" in line


@pytest.mark.full
@pytest.mark.parametrize("layout", ["decoder", "prefix", "encoder_decoder", "bidirectional"])
def test_every_family_can_do_a_suite(
    layout: str, tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words[1] = str(make_run(tmp_path / layout, layout))
    assert run([*words, "--tasks", "RTE", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert 0 <= row["this model"] <= 1


def test_the_suites_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "suites", "--json"]) == 0
    early, glue, *_ = json.loads(capsys.readouterr().out)
    assert (early["suite"], glue["suite"]) == ("early", "glue")
    assert "CoLA (matthews)" in glue["tasks"]
