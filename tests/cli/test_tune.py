from __future__ import annotations

import json
import re
import traceback
from pathlib import Path

import pytest
import torch

from foreword.cli.main import run
from foreword.settings.kinds import ROOT
from foreword.tuning.remarks import remarks_on
from foreword.tuning.scores import Scores
from foreword.tuning.tuned_model import load_tuned
from foreword.verbs._contract import arguments_of
from foreword.verbs._tune_settings import FineTunes
from foreword.verbs.tune import Tune
from tests.cli.conftest import Refused, Told
from tests.tuning.runs import make_run, reviews


def write(path: Path, count: int, seed: int) -> Path:
    lines = [f"{e.text}\t{e.label}" for e in reviews(count, seed)]
    path.write_text("\n".join(["text\tlabel", *lines, ""]), encoding="utf-8")
    return path


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    data = tmp_path / "reviews"
    data.mkdir()
    train, dev = write(data / "train.tsv", 64, 1), write(data / "dev.tsv", 32, 2)
    folder = make_run(tmp_path / "run")
    fast = ["--epochs", "1", "--seeds", "2", "--device", "cpu"]
    return ["tune", "--strategy=full", str(folder), "--train", str(train), "--dev", str(dev), *fast]


def test_compare_writes_scores_and_a_model(tmp_path: Path, words: list[str], told: Told) -> None:
    printed = told(*words, "--compare")
    file = tmp_path / "run" / "evaluations" / "tune-classify-reviews.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    del document["checksum"]
    assert document.items() <= printed.items()
    assert document["name"] == "reviews"
    assert document["title"] == "Fine-tuning: classify, reviews"
    assert document["task"] == "classify"
    assert [row["start"] for row in document["rows"]] == [
        "pretrained",
        "pretrained",
        "from scratch",
        "no network",
        "no model",
    ]
    assert {"accuracy", "accuracy_std", "f1", "matthews", "lr", "seeds"} <= document["rows"][
        0
    ].keys()
    assert document["examples"] == {
        "train": 64, "dev": 32, "cut": 0, "in_windows": 0, "skipped": 0,
    }  # fmt: skip
    assert len(load_tuned(tmp_path / "run" / "tuned" / "reviews").predict(["fine"])[0]) == 1


def test_tune_prints_a_table_of_scores(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 0
    captured = capsys.readouterr()
    assert "accuracy" in captured.out
    assert "±" in captured.out
    assert "majority class" in captured.out
    assert "64 training examples, 32 dev examples; 0 cut to 32 tokens" in captured.err
    assert "2 seeds, scored after 1 epoch;" in captured.err


def test_an_interrupted_call_says_how_to_continue(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("foreword.tuning.tune_and_save.tune_and_save", interrupted)
    assert run(words) == 130
    assert capsys.readouterr().err.endswith("interrupted; the same command continues\n")


@pytest.mark.parametrize(("skipped", "said"), [(0, "0 rows"), (1, "1 row"), (1200, "1,200 rows")])
def test_skipped_rows_are_counted_in_words(skipped: int, said: str) -> None:
    examples = {"train": 9, "dev": 5, "cut": 0, "skipped": skipped}
    content = {"examples": examples, "settings": {}, "max_tokens": 64}
    scores = [Scores("pretrained", "full", {}, {"seeds": 1})]
    (line,) = remarks_on(content, scores, shows_parameters=True)
    assert f" {said} skipped (empty, or without a label); 1 seed" in line


def test_eleven_functions_lie_between_the_words_of_the_command_and_the_gradients(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[str]] = []
    backward = torch.Tensor.backward

    def noting(self: torch.Tensor) -> None:
        stack = traceback.extract_stack()
        found.append([frame.name for frame in stack if Path(frame.filename).is_relative_to(ROOT)])
        backward(self)

    monkeypatch.setattr(torch.Tensor, "backward", noting)
    assert run(words) == 0
    assert found[0][:5] == ["run", "called", "__call__", "tune_and_save", "tune"]
    assert len(found[0]) == 11  # as in pretraining, the last four are the loop and its step


def test_many_cut_texts_are_told_before_training(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--max-length", "5", "--set", "task.windows=cut"]) == 0
    told = capsys.readouterr().err
    warning = "% of the examples are cut to 5 tokens, and what follows is not read; "
    assert told.count(warning + "--max-length 48 reads up to 48, and takes longer") == 1
    assert told.index(warning) < told.index("2 seeds, scored")


@pytest.mark.full
def test_columns_by_number_and_settings_of_the_task_are_accepted(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("train", "dev"):
        path = tmp_path / "reviews" / f"{name}.tsv"
        _, *lines = path.read_text(encoding="utf-8").splitlines()
        path.write_text("\n".join(lines), encoding="utf-8")
    more = ["--text", "0", "--label", "1", "--set", "task.pooling=last", "--json"]
    assert run([*words, *more]) == 0
    printed = json.loads(capsys.readouterr().out)
    sizes = {"train": 64, "dev": 32, "cut": 0, "in_windows": 0, "skipped": 0}
    assert printed["examples"] == sizes
    assert printed["settings"]["task"]["pooling"] == "last"


@pytest.mark.full
def test_the_name_includes_the_training_file(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--seeds", "1"]) == 0
    other = tmp_path / "reviews" / "less.v2.tsv"
    other.write_bytes((tmp_path / "reviews" / "train.tsv").read_bytes())
    words[words.index("--train") + 1] = str(other)
    assert run([*words, "--seeds", "1"]) == 0
    assert "Fine-tuning: classify, reviews-less" in capsys.readouterr().out
    assert (tmp_path / "run" / "evaluations" / "tune-classify-reviews-less.json").is_file()
    assert run(["report", str(tmp_path / "run")]) == 0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "<h2>Fine-tuning: classify, reviews</h2>" in page
    assert "<h2>Fine-tuning: classify, reviews-less</h2>" in page


def test_regression_scores_are_shown(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("train", "dev"):
        path = tmp_path / "reviews" / f"{name}.tsv"
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("\tgood", "\t4.5").replace("\tbad", "\t1"), encoding="utf-8")
    assert run([*words, "--task", "regress"]) == 0
    output = capsys.readouterr().out
    assert "pearson" in output
    assert "spearman" in output


@pytest.mark.product(few=4)
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ["--label", "lable"],
            "no column 'lable'; its columns: text, label; choose one with --label",
        ),
        (["--strategy", "fulll"], "--strategy: no kind 'fulll'; did you mean 'full'?"),
        (["--task", "clasify"], "--task: no kind 'clasify'; did you mean 'classify'?"),
        (["--lr", "20"], "--lr: must be a number"),
        (
            ["--strategy", "top_layers", "--set", "tune.strategy.layers=9"],
            "tune.strategy.layers: the model has 2 layers, got 9",
        ),
        (
            ["--strategy", "lora", "--set", "tune.strategy.rank=99"],
            "tune.strategy.rank: must be at most 32",
        ),
        (["--compare", "--from-scratch"], "--compare cannot be combined with"),
        (["--name", "a/b"], "a name, not a path"),
        (["--max-length", "100"], "the model has 48 positions"),
        (
            ["--set", "task.poling=mean"],
            "task.poling: kind 'classify' has no such setting; did you mean",
        ),
        (["--set", "model.layers=2"], "--set model: expected task.NAME=value or tune.NAME=value"),
        (["--task", "regress"], "'bad' is not a number"),
        (["--text", "0"], "all by name, or all by number"),
    ],
)
def test_mistakes_are_reported_in_one_line_and_leave_nothing(
    tmp_path: Path,
    words: list[str],
    more: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([*words, *more]) == 2
    lines = capsys.readouterr().err.splitlines()
    (error,) = [line for line in lines if not line.startswith("warning: ")]
    assert message in error
    assert not (tmp_path / "run" / "evaluations").exists()
    assert not (tmp_path / "run" / "tuned").exists()


def test_an_existing_out_is_not_overwritten(
    tmp_path: Path, words: list[str], refused: Refused
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine", encoding="utf-8")
    assert "is not empty" in refused(*words, "--out", str(out))
    assert run(words) == 0
    assert "already exists; choose another --name" in refused(
        *words, "--out", str(tmp_path / "other")
    )
    assert (out / "mine.txt").read_text(encoding="utf-8") == "mine"


@pytest.mark.full
def test_several_tasks_are_told_apart_by_prefixes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    folder = make_run(tmp_path / "run", "encoder_decoder")
    tasks = []
    for n, name in enumerate(("fine", "warm")):
        (tmp_path / name).mkdir()
        files = [write(tmp_path / name / f"{part}.tsv", 16, n) for part in ("train", "dev")]
        tasks += ["--train", str(files[0]), "--dev", str(files[1]), "--prefix", f"{name} film "]
    words = ["tune", "--strategy=full", str(folder), "--task", "text_to_text", *tasks]
    fast = ["--epochs", "1", "--seeds", "1", "--device", "cpu", "--max-length", "32"]
    assert (
        run([*words, *fast, "--temperature", "2", "--set", 'task.words=["bad=dull"]', "--json"])
        == 0
    )
    printed = json.loads(capsys.readouterr().out)
    assert printed["examples"]["train"] == 32
    assert printed["settings"]["data"]["prefix"] == ["fine film ", "warm film "]
    assert {"accuracy", "tokens"} <= printed["rows"][0].keys()
    out = printed["out"]
    assert run(["generate", out, "fine film was lovely", "--device", "cpu"]) == 0
    assert "--prefix: requires one for each --train and each --dev" in refused(
        *words[:-2], "--name", "odd", *fast
    )


def test_an_unknown_precision_or_device_is_refused(words: list[str], refused: Refused) -> None:
    for more, message in (
        (
            ["--precision", "fp16"],
            "tune.precision: 'fp16' is not a choice; choose from: auto, bf16, fp32",
        ),
        (["--device", "gpu"], "--device: there is no 'gpu'; there is: auto, cpu, cuda, mps"),
    ):
        assert message in refused(*words, *more)


def test_a_finished_tune_is_not_repeated(
    tmp_path: Path,
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    refused: Refused,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run(words) == 0
    out = tmp_path / "run" / "tuned" / "reviews"
    assert f"'foreword predict {out} FILE' uses it" in capsys.readouterr().err
    evaluation = tmp_path / "run" / "evaluations" / "tune-classify-reviews.json"
    scores = evaluation.read_bytes()
    monkeypatch.setattr(
        "foreword.tuning.tune_and_save.tune", lambda *_: pytest.fail("it trained again")
    )
    assert run(words) == 0
    captured = capsys.readouterr()
    assert "done already" in captured.err
    assert "majority class" in captured.out
    assert "already exists; choose another --name" in refused(*words, "--epochs", "2")
    # As after a kill between the model and its scores.
    evaluation.unlink()
    assert run(words) == 0
    assert evaluation.read_bytes() == scores
    # The same arguments with other examples are another request.
    write(tmp_path / "reviews" / "train.tsv", 64, 5)
    assert run(words) == 2


@pytest.mark.full
def test_the_best_of_several_rates_is_chosen_and_said(
    words: list[str], capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    both = ["--lr", "1e-5", "--lr", "1e-2"]
    assert "64 training examples are too few to choose a learning rate" in refused(*words, *both)
    assert "--lr: several cannot be combined with --compare" in refused(*words, *both, "--compare")
    assert run([*words, *both, "--choose", "dev"]) == 0
    err = capsys.readouterr().err
    assert "chosen by accuracy on the dev examples themselves" in err
    assert "1e-05 (" in err
    assert "0.01 (" in err


@pytest.mark.full
def test_the_best_epoch_is_kept_where_asked_and_this_is_said(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    keep = ["--set", "tune.keep=best", "--set", "tune.patience=1"]
    assert run([*words[:-6], *words[-4:], "--epochs", "3", *keep]) == 0
    err = capsys.readouterr().err
    assert "each at its best of at most 3 epochs" in err
    assert "kept the best of its epochs by accuracy on the dev examples" in err


def test_the_help_names_settings_that_exist() -> None:
    (shown,) = (a.meaning for a in arguments_of(Tune) if a.name == "settings")
    named = re.findall(r"(?:task|tune)\.[a-z_.]+=[a-z0-9.]+", shown)
    for name in ("optimizer.decay", "schedule.warmup.share", "clip", "keep", "patience"):
        assert any(setting.startswith(f"tune.{name}=") for setting in named)
    named = [setting for setting in named if "strategy" not in setting]  # rank is lora's
    FineTunes(settings=named).tuning_task({"kind": "classify"})
    assert "'foreword show tune' lists them" in shown
