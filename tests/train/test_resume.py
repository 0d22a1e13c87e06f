"""A resumed run equals an uninterrupted one bit for bit, in every family."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from foreword.errors import UserError
from foreword.nn.attentions.dense import Dense
from foreword.process import signals
from foreword.settings import config, kinds
from foreword.train import checkpoint, log
from tests.train import runs


@pytest.mark.product(only=("decoder", "bert", "muon", "transformer_xl", "electra", "lstm"))
@pytest.mark.parametrize("family", [*runs.FAMILIES, *runs.VARIANTS])
def test_a_resumed_run_equals_an_uninterrupted_one(family: str, text: Path, tmp_path: Path) -> None:
    made = runs.recipe(family, steps=4, checkpoints=2, evaluations=1)
    text = runs.text_for(family, text, tmp_path / "text")
    whole = runs.whole(made, text, tmp_path / "whole")
    run = runs.begin(made, text, tmp_path / "run")
    runs.die_at(run, 3)  # after the checkpoint of step 2
    assert [folder.name for folder in checkpoint.all_in(run)] == [checkpoint.name_of(2)]
    assert runs.train_run(run)
    require_equal(run, whole, 4)


@pytest.mark.full
@pytest.mark.parametrize("family", ["decoder", "transformer_xl"])
def test_a_run_resumed_twice_equals_an_uninterrupted_one(
    family: str, text: Path, tmp_path: Path
) -> None:
    made = runs.recipe(family)
    whole = runs.whole(made, text, tmp_path / "whole")
    run = runs.begin(made, text, tmp_path / "run")
    for step in (5, 10):
        runs.die_at(run, step)
        assert [folder.name for folder in checkpoint.all_in(run)][-1] < checkpoint.name_of(step)
    assert runs.train_run(run)
    require_equal(run, whole, 12)


def require_equal(run: Path, whole: Path, steps: int) -> None:
    """Require the same bytes, and the same records of every step."""
    assert runs.last_bytes(run) == runs.last_bytes(whole)
    for kind in ("train", "heldout"):
        assert runs.logged(run, kind) == runs.logged(whole, kind)
    assert [record["step"] for record in runs.logged(run, "train")] == [*range(1, steps + 1)]


@pytest.mark.parametrize(
    ("family", "shuffle"), [("decoder", "rows"), ("decoder", "documents"), ("lstm", "documents")]
)
def test_a_run_resumed_in_a_later_epoch_equals_an_uninterrupted_one(
    family: str, shuffle: str, tmp_path: Path
) -> None:
    table = config.merge(runs.table(family), {"packing": {"length": 16, "shuffle": shuffle}})
    made, text = runs.build(table), runs.write_text(tmp_path / "text", files=1)
    whole = runs.whole(made, text, tmp_path / "whole")
    run = runs.begin(made, text, tmp_path / "run")
    runs.die_at(run, 8)
    epochs = checkpoint.read_state(checkpoint.newest(run))["spent"]["epochs"]
    assert 1 < epochs < 2
    assert runs.train_run(run)
    require_equal(run, whole, 12)


@pytest.mark.full
@pytest.mark.parametrize("workers", [1, 2])
def test_a_resumed_run_in_several_micro_batches_equals_an_uninterrupted_one(
    workers: int, text: Path, tmp_path: Path
) -> None:
    made = runs.recipe(batch=5, micro_batch=2, threads=workers, steps=6, checkpoints=2)
    whole = runs.whole(made, text, tmp_path / "whole")
    run = runs.begin(made, text, tmp_path / "run")
    runs.die_at(run, 5)
    assert runs.train_run(run)
    assert runs.last_bytes(run) == runs.last_bytes(whole)


# Fitted at once (`test_offline.py`), and others' code with another core.
ELSEWHERE = {"ngram", "word_vectors", "skip_gram", "gru", "rnn"}


def test_every_kind_has_a_test_of_resuming() -> None:
    seen: dict[str, set[str]] = {}
    for family in (*runs.FAMILIES, *runs.VARIANTS):
        made = runs.recipe(family)
        objectives = (made.objective, *getattr(made.objective, "terms", ()))
        for folder, components in {
            "models": [made.model],
            "nn/attentions": [getattr(made.model, "attention", None) or Dense()],
            "objectives": objectives,
            "layouts": [made.layout],
            "data/packing": [made.packing],
        }.items():
            seen.setdefault(folder, set()).update(kinds.name_of(part) for part in components)
    for folder, names in seen.items():
        assert set(kinds.names(folder)) - names <= ELSEWHERE, folder


@pytest.mark.full
def test_dropout_changes_the_weights_of_the_tested_runs(text: Path, tmp_path: Path) -> None:
    """Without dropout the tests of resuming would not check its seeds."""
    results = []
    for share in (0.1, 0.0):
        table = runs.table()
        table["model"] |= {"dropout": share, "attention_dropout": share}
        made = runs.build(table)
        run = runs.begin(made, text, tmp_path / str(share))
        runs.train_run(run)
        results.append(runs.last_bytes(run)["weights.safetensors"])
    assert results[0] != results[1]


def test_a_resumed_run_without_its_memory_ends_elsewhere(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the memory that rows pass on, a resumed run has other weights."""
    run = runs.begin(runs.recipe("transformer_xl"), text, tmp_path / "run")
    runs.die_at(run, 5)
    forgetful = tmp_path / "forgetful"
    shutil.copytree(run, forgetful)
    memory = checkpoint.load_memory(checkpoint.all_in(run)[-1], torch.device("cpu"))
    shapes = [[tuple(states.shape) for states in one or ()] for one in memory]
    assert shapes == [[(2, 24, 16)] * 2] * 2  # of two workers, what entered two layers
    assert runs.train_run(run)
    monkeypatch.setattr(checkpoint, "load_memory", lambda folder, device: ())
    assert runs.train_run(forgetful)
    assert runs.last_bytes(run) != runs.last_bytes(forgetful)


@pytest.fixture
def listening() -> Iterator[None]:
    """Give every signal its default action, whatever started the tests."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in signals.ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def sends(*numbers: signal.Signals) -> Callable[[], None]:
    """Return a function that sends signals to this process."""

    def send() -> None:
        for number in numbers:
            os.kill(os.getpid(), number)

    return send


@pytest.mark.product(few=1)
@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_saves_the_run_and_ends_it(
    number: signal.Signals, text: Path, tmp_path: Path
) -> None:
    made = runs.recipe("encoder")
    whole = runs.whole(made, text, tmp_path / "whole")
    run = runs.begin(made, text, tmp_path / "run")
    before = signal.getsignal(number)
    reporter = runs.Quiet(5, sends(number, number))  # twice, as `timeout` does
    assert not runs.train_run(run, reporter)
    assert signal.getsignal(number) is before
    assert checkpoint.all_in(run)[-1].name == checkpoint.name_of(5)
    assert sum("saved" in line for line in reporter.warnings) == 1
    assert runs.train_run(run)
    assert runs.last_bytes(run) == runs.last_bytes(whole)


@pytest.mark.usefixtures("listening")
def test_a_second_ctrl_c_leaves_at_once_but_a_second_hangup_does_not(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "TOGETHER", 0.0)
    run = runs.begin(runs.recipe(), text, tmp_path / "run")
    hangups = [signal.SIGINT, *[signal.SIGHUP] * 3]
    assert not runs.train_run(run, runs.Quiet(5, sends(*hangups)))
    with pytest.raises(KeyboardInterrupt):
        runs.train_run(run, runs.Quiet(8, sends(signal.SIGINT, signal.SIGTERM)))
    assert checkpoint.all_in(run)[-1].name == checkpoint.name_of(6)


@pytest.mark.full
@pytest.mark.usefixtures("listening")
def test_a_signal_that_was_ignored_before_stays_ignored(text: Path, tmp_path: Path) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` does
    run = runs.begin(runs.recipe(), text, tmp_path / "run")
    assert runs.train_run(run, runs.Quiet(5, sends(signal.SIGHUP)))


@pytest.mark.full
def test_resuming_a_finished_run_changes_nothing(text: Path, tmp_path: Path) -> None:
    run = runs.whole(runs.recipe(), text, tmp_path / "run")
    before = runs.last_bytes(run), log.read(run)
    assert runs.train_run(run)
    assert (runs.last_bytes(run), log.read(run)) == before


def test_a_cut_last_line_of_the_log_is_written_again(text: Path, tmp_path: Path) -> None:
    run = runs.begin(runs.recipe(), text, tmp_path / "run")
    runs.die_at(run, 8)
    with (run / log.FILE).open("a") as file:
        file.write('{"kind": "train", "step": 8, "lo')
    runs.train_run(run)
    lines = (run / log.FILE).read_text().splitlines()
    steps = [r["step"] for r in map(json.loads, lines) if r["kind"] == "train"]
    assert steps == list(range(1, 13))


@pytest.mark.full
def test_the_held_out_loss_uses_the_same_rows_each_time(text: Path, tmp_path: Path) -> None:
    """With a negligible learning rate weights and held-out loss stay the same."""
    table = runs.table("encoder")
    table["optimizer"] = {"kind": "adamw", "lr": 1e-30, "decay": 0.0}
    run = runs.whole(runs.build(table), text, tmp_path / "run")
    heldout = runs.logged(run, "heldout")
    assert [record["step"] for record in heldout] == [4, 8, 12]
    assert len({(record["loss"], record["predictions"]) for record in heldout}) == 1


def test_a_run_resumes_without_its_text_but_not_with_another(tmp_path: Path) -> None:
    text = runs.write_text(tmp_path / "text")
    run = runs.begin(runs.recipe(), text, tmp_path / "run")
    runs.die_at(run, 5)
    again = tmp_path / "again"
    shutil.copytree(run, again)
    shutil.rmtree(text)
    assert runs.train_run(run)
    runs.write_text(text, seed=2)
    shutil.rmtree(again / "shards")
    with pytest.raises(UserError, match="the text has changed since the run began"):
        runs.train_run(again)
