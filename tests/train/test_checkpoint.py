"""Checkpoints are whole or absent, verified when read, and pruned."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from foreword.disk import atomic, stored
from foreword.errors import UserError
from foreword.runs import measure
from foreword.runs.run_folder import open_run
from foreword.train import checkpoint
from foreword.train.step import Evaluation
from tests.train import runs


def model() -> nn.Module:
    """Two layers that share their weight."""
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    return nn.Sequential(first, second)


def save(folder: Path, of: nn.Module | None = None, step: int = 1) -> Path:
    checkpoint.save(folder, of or model(), None, {"step": step})
    return folder


def spoil(file: Path) -> None:
    """Flip one bit of a file."""
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def test_saved_weights_load_back_equal(tmp_path: Path) -> None:
    saved, loaded = model(), model()
    save(tmp_path / "step", saved)
    assert sorted(checkpoint.weights_of(saved)) == ["0.bias", "0.weight", "1.bias"]
    checkpoint.verify(tmp_path / "step")
    checkpoint.load_weights(tmp_path / "step", loaded)
    for one, other in zip(saved.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["weights.safetensors", "state.json"])
def test_damaged_files_are_named(tmp_path: Path, name: str) -> None:
    folder = save(tmp_path / "step")
    spoil(folder / name)
    with pytest.raises(UserError, match=f"{name} does not match its checksum"):
        checkpoint.verify(folder)
    (folder / name).write_bytes((folder / name).read_bytes()[:-1])
    with pytest.raises(UserError, match=f"{name} is missing or cut short"):
        checkpoint.verify(folder)


def test_a_training_may_prune_what_is_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (tmp_path / "checkpoints" / checkpoint.name_of(n) for n in (1, 2))
    save(first, step=1)

    def goes_on(*_: object) -> None:
        """Save the next checkpoint and delete this one, as a training does meanwhile."""
        monkeypatch.undo()
        save(second, step=2)
        shutil.rmtree(first)

    for name in ("verify", "read_state"):
        known = getattr(checkpoint, name)

        def first_goes_on(folder: Path, known: Any = known, **options: Any) -> Any:
            goes_on()
            return known(folder, **options)

        monkeypatch.setattr(checkpoint, name, first_goes_on)
        assert checkpoint.newest_state(tmp_path)["step"] == 2
        shutil.rmtree(second)
        save(first, step=1)


def test_another_version_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path / "step")
    manifest = stored.read(folder / "manifest.json")
    stored.write(folder / "manifest.json", manifest | {"foreword_checkpoint": 2})
    with pytest.raises(UserError, match="version 2; this Foreword reads version 1"):
        checkpoint.verify(folder)


def test_a_newer_checkpoint_of_another_version_is_not_skipped(tmp_path: Path) -> None:
    save(tmp_path / "checkpoints" / checkpoint.name_of(1))
    newer = save(tmp_path / "checkpoints" / checkpoint.name_of(2))
    manifest = stored.read(newer / "manifest.json")
    stored.write(newer / "manifest.json", manifest | {"foreword_checkpoint": 2})
    with pytest.raises(UserError, match="version 2"):
        checkpoint.newest(tmp_path)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    folder = save(tmp_path / "step")
    with pytest.raises(UserError, match=r"no tensor .*; the checkpoint belongs to another recipe"):
        checkpoint.load_weights(folder, nn.Sequential(nn.Linear(4, 4)))
    wide = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5))
    wide[1].weight = wide[0].weight
    with pytest.raises(UserError, match=r"is \(4, 4\), and the recipe says \(5, 5\)"):
        checkpoint.load_weights(folder, wide)


def test_a_failed_save_leaves_the_earlier_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(tmp_path / "step", step=1)

    def fail(path: Path) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic, "checksum", fail)
    with pytest.raises(KeyboardInterrupt):
        save(folder, step=2)
    monkeypatch.undo()
    checkpoint.verify(folder)
    assert checkpoint.read_state(folder)["step"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["step"]


def test_pruning_keeps_the_last_and_the_best(tmp_path: Path) -> None:
    folders = [save(tmp_path / "checkpoints" / checkpoint.name_of(n)) for n in range(1, 6)]
    checkpoint.prune(tmp_path, keep=2, best=folders[0].name, last=folders[4].name)
    assert checkpoint.all_in(tmp_path) == [folders[0], folders[3], folders[4]]


@pytest.mark.full
def test_a_damaged_checkpoint_does_not_count_as_kept(text: Path, tmp_path: Path) -> None:
    """A run that resumes before a damaged checkpoint must not delete whole ones."""
    run = runs.begin(
        runs.recipe(kept_checkpoints=1, checkpoints=12, evaluations=1), text, tmp_path / "run"
    )
    runs.die_at(run, 9)
    latest = checkpoint.all_in(run)[-1]
    good = save_at(run, latest, step=6)
    spoil(latest / "weights.safetensors")
    reporter = runs.Quiet(good + 2, runs.kill)
    with pytest.raises(runs.Killed):
        runs.train_run(run, reporter)
    assert any("checksum; the one before it is used" in line for line in reporter.warnings)
    assert checkpoint.newest(run).name == checkpoint.name_of(good + 1)
    assert runs.train_run(run)


def save_at(run: Path, whole: Path, step: int) -> int:
    """Write a checkpoint of an earlier step beside `whole`, as `keep` would have left it."""
    earlier = whole.with_name(checkpoint.name_of(step))
    state = checkpoint.read_state(whole)
    state["step"] = state["spent"]["steps"] = step
    trained = open_run(whole)
    optimizer = trained.recipe.optimizer.build(trained.model)
    checkpoint.load_optimizer(whole, trained.model, optimizer)
    checkpoint.save(earlier, trained.model, optimizer, state)
    return step


def test_a_run_without_a_whole_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no checkpoint"):
        checkpoint.newest(tmp_path)
    folder = save(tmp_path / "checkpoints" / checkpoint.name_of(3))
    spoil(folder / "weights.safetensors")
    with pytest.raises(UserError, match="damaged"):
        checkpoint.newest(tmp_path)


def test_a_run_keeps_its_best_checkpoint(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = iter([30.0, 20.0, 40.0, 50.0])  # of 10 predictions
    monkeypatch.setattr(measure, "evaluate", lambda *_: Evaluation(next(sums), 10.0, {}))
    made = runs.recipe(steps=12, evaluations=4, checkpoints=4, kept_checkpoints=1)
    run = runs.whole(made, text, tmp_path / "run")
    assert [record["loss"] for record in runs.logged(run, "heldout")] == [3.0, 2.0, 4.0, 5.0]
    kept = [folder.name for folder in checkpoint.all_in(run)]
    assert kept == [checkpoint.name_of(6), checkpoint.name_of(12)]
    state = checkpoint.read_state(checkpoint.newest(run))
    assert (state["best"], state["best_loss"]) == (checkpoint.name_of(6), 2.0)


def test_running_statistics_load_back_equal(tmp_path: Path) -> None:
    saved, loaded = (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)) for _ in range(2))
    saved[1].register_buffer("made_anew", torch.zeros(1), persistent=False)
    saved(torch.randn(8, 4))
    folder = save(tmp_path / "step", saved)
    checkpoint.load_weights(folder, loaded)
    assert "1.made_anew" not in checkpoint.weights_of(saved)
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        assert torch.equal(getattr(saved[1], name), getattr(loaded[1], name))


def test_an_optimizer_whose_state_is_not_of_tensors_is_refused(tmp_path: Path) -> None:
    line = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(line.parameters())
    optimizer.state[line.weight]["steps"] = 3
    with pytest.raises(UserError, match="weight/steps is of type int"):
        checkpoint.save(tmp_path / "step", line, optimizer, {})
    assert not (tmp_path / "step").exists()


def test_a_state_of_a_parameter_that_the_model_lacks_is_refused(tmp_path: Path) -> None:
    line = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(line.parameters())
    optimizer.state[line.bias]["momentum_buffer"] = torch.zeros(4)
    checkpoint.save(tmp_path / "step", line, optimizer, {})
    other = nn.Linear(4, 4, bias=False)
    with pytest.raises(UserError, match="bias/momentum_buffer has no parameter"):
        checkpoint.load_optimizer(tmp_path / "step", other, torch.optim.SGD(other.parameters()))


def test_checkpoints_are_ordered_by_step_beyond_eight_digits(tmp_path: Path) -> None:
    steps = (10**8 - 1, 10**8, 10**8 + 1)
    for step in steps:
        save(tmp_path / "checkpoints" / checkpoint.name_of(step), step=step)
    names = [checkpoint.name_of(step) for step in steps]
    assert [folder.name for folder in checkpoint.all_in(tmp_path)] == names
    checkpoint.prune(tmp_path, 2, None, names[1])
    assert [folder.name for folder in checkpoint.all_in(tmp_path)] == names
    left = checkpoint.delete_after(tmp_path, 10**8)
    assert left is not None
    assert left.name == names[1]
    assert [folder.name for folder in checkpoint.all_in(tmp_path)] == names[:2]
