"""Runs that are watched: their checkpoints as models, their curves, and who may stop them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from foreword import pretrain, tune
from foreword.disk import atomic
from foreword.display.progress import Quiet
from foreword.process import holders
from foreword.runs import stages
from foreword.serving import app
from foreword.serving.app import Server, application
from foreword.serving.guard import Guard
from foreword.serving.served import Capacity, Served
from foreword.serving.watched import Watched, is_watchable
from foreword.train import checkpoint
from foreword.verbs._load import load
from tests import shelf
from tests.train import runs

TEXT = "the cat ran over the old river"
TINY = [
    "train.kept_checkpoints=6", "train.checkpoints=6", "train.evaluations=3", "train.device=cpu",
    "train.batch=2", "model.d_model=16", "model.layers=1", "packing.length=16",
    "tokenizer.kind=word",
]  # fmt: skip
HOLD = (
    "import subprocess, sys, time; from pathlib import Path; from foreword.disk import atomic\n"
    "with atomic.locked(Path(sys.argv[1])):\n"
    " child = subprocess.Popen(['sleep', '60'], close_fds=False)\n"
    " print(child.pid, flush=True)\n time.sleep(60)"
)
PAGE = {"origin": "http://127.0.0.1"}


def write_run(folder: Path) -> None:
    text = shelf.made("text", runs.write_text)
    pretrain("gpt2_tiny", text, folder, steps=12, settings=TINY, progress=False)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return shelf.copied("watched", write_run, tmp_path / "gpt")


@contextmanager
def served(folder: Path, guard: Guard | None = None, **how: Any) -> Iterator[TestClient]:
    models = [Served("gpt", load(folder, "cpu"), Capacity())] if checkpoint.all_in(folder) else []
    server = Server(models, 1 << 16, [Watched("gpt", folder, **how)])
    try:
        yield TestClient(application(server, guard or Guard()), base_url="http://127.0.0.1")
        assert len(server._checkpoints) <= app.OPENED
    finally:
        server.close()


def test_each_checkpoint_is_a_model_and_few_are_held(run: Path) -> None:
    with served(run, can_control=True) as client:
        steps = client.get("/runs").json()["data"][0]["checkpoints"]
        assert len(steps) > app.OPENED
        nats = []
        for step in [*steps, steps[0]]:
            body = {"model": f"gpt@{step}", "text": TEXT}
            nats.append(client.post("/score", json=body).json()["data"][0]["nats"])
            folder = run / "checkpoints" / checkpoint.name_of(step)
            assert nats[-1] == pytest.approx(load(folder, "cpu").score(TEXT).totals.nats)
        last = client.post("/score", json={"model": "gpt", "text": TEXT}).json()["data"][0]
        assert nats[-2] == last["nats"] and nats[0] == nats[-1] != nats[-2]
        for path, more in (
            ("/v1/completions", {"prompt": TEXT, "seed": 1}),
            ("/tokenize", {"prompt": TEXT}),
        ):
            answer = client.post(path, json={"model": f"gpt@{steps[1]}", **more})
            assert answer.status_code == 200, answer.text
        wrong = client.post("/score", json={"model": "gpt@3", "text": TEXT}).json()["error"]
        assert wrong["message"].endswith("there is: 2, 4, 6, 8, 10, 12")
        for name, status in (("gpt@3", 404), ("gpt@../..", 404), ("other@2", 404)):
            refused = client.post("/score", json={"model": name, "text": TEXT})
            assert refused.status_code == status and str(run) not in refused.text
        (run / "checkpoints" / checkpoint.name_of(steps[2]) / "state.json").unlink()
        (run / "recipe.toml").write_text("broken")
        for path, body, word in [
            ("/score", {"model": f"gpt@{steps[2]}", "text": TEXT}, "state.json"),
            ("/runs/resume", {}, "gpt/recipe.toml"),
        ]:
            damaged = client.post(path, json=body, headers=PAGE)
            assert (
                damaged.status_code == 400 and word in damaged.text and str(run) not in damaged.text
            )


def test_curves_and_samples_of_a_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foreword.serving.watched.MOST_POINTS", 5)
    with served(run) as client:
        history = client.get("/runs/gpt").json()
        assert (history["state"], history["share"], history["step"]) == ("finished", 1.0, 12)
        assert len(history["train"]["step"]) <= 5 and history["train"]["step"][-1] == 12
        assert history["heldout"]["loss"][0] > history["heldout"]["loss"][-1]
        assert {s["step"] for s in history["samples"]} == set(history["heldout"]["step"])
        with atomic.locked(run):
            assert client.get("/runs").json()["data"][0]["state"] == "training"
        with (run / "metrics.jsonl").open("a") as file:
            file.write("broken\n{}\n")
        refused = client.get("/runs/gpt")
        assert refused.status_code == 400 and "gpt/metrics.jsonl" in refused.text
        assert str(run) not in refused.text
        assert client.get("/runs/other").status_code == 404
        shutil.rmtree(run)
        (gone,) = client.get("/runs").json()["data"]
        assert (gone["kind"], gone["state"]) == ("run", "damaged")
        refused = client.get("/runs/gpt")
        assert refused.status_code == 400 and "gpt: is no run any more" in refused.text


def test_a_counted_model_is_whole_and_has_no_budget(tmp_path: Path) -> None:
    text = shelf.made("text", runs.write_text)
    pretrain("ngram_tiny", text, tmp_path / "n", progress=False)
    about = Watched("n", tmp_path / "n").about()
    assert (about["state"], about["share"], about["budget"]) == ("finished", 1.0, None)


def test_cells_of_a_comparison_as_they_fill(run: Path, tmp_path: Path) -> None:
    grid = tmp_path / "grid"
    (grid / "runs").mkdir(parents=True)
    (grid / "grid.toml").write_text('description = "two"\nseeds = 2\ncells = [{label = "a"}]\n')
    with served(grid) as client:
        about = client.get("/runs").json()["data"][0]
        assert (about["kind"], about["done"], about["planned"]) == ("comparison", 0, 2)
        for name in ("a-1", "a-2"):
            assert about["state"] == "stopped"
            shelf.copied("watched", write_run, grid / "runs" / name)
            about = client.get("/runs").json()["data"][0]
        assert (about["state"], about["share"]) == ("finished", 1.0)
        (grid / "runs" / "a-2" / "recipe.toml").write_text("broken")
        cells = client.get("/runs/gpt").json()["cells"]
        assert [cell["name"] for cell in cells] == ["a-1", "a-2"] and cells[0]["heldout"]["loss"]
        assert cells[1]["state"] == "damaged" and cells[1]["error"].startswith("a-2/recipe.toml: ")


def test_a_damaged_run_hides_no_other(run: Path, tmp_path: Path) -> None:
    shelf.copied("watched", write_run, tmp_path / "bad")
    (tmp_path / "bad" / "recipe.toml").write_text("broken")
    server = Server([], 1 << 16, [Watched("bad", tmp_path / "bad"), Watched("gpt", run)])
    client = TestClient(application(server, Guard()), base_url="http://127.0.0.1")
    bad, good = client.get("/runs").json()["data"]
    assert (bad["state"], good["state"]) == ("damaged", "finished")
    assert bad["error"].startswith("bad/recipe.toml: ") and bad["checkpoints"]


def test_a_fine_tuning_in_progress_is_seen(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "OFTEN", 0)
    seen = []

    class Looking(Quiet):
        def stage(self, name: str) -> Any:
            return lambda *_: seen.append(client.get("/runs/gpt").json()["tunings"])

    rows = [("the cat ran", "a"), ("an old river", "b")] * 4
    with served(run) as client:
        tune(run, rows, rows, name="x", strategy="full", epochs=2, seeds=1, progress=Looking())
        assert client.get("/runs/gpt").json()["tunings"] == []
    assert seen[0][0]["stage"] == "starting" and seen[-1][0]["name"] == "x"
    assert seen[-1][0]["stage"] == "tuning" and 0 < seen[-1][0]["done"] < seen[-1][0]["total"]
    assert [path.name for path in (run / "tuned").iterdir()] == ["x"]


def test_a_fine_tuning_whose_folder_is_named_is_watched(tmp_path: Path) -> None:
    out = tmp_path / "polite"
    assert not is_watchable(out)
    with stages.watchable(stages.Silent(), stages.progress_folder(out)) as shown:
        shown.stage("tuning")(1, 4)
        assert is_watchable(out)
        watched = Watched("polite", out, can_control=True)
        history = watched.history()
        assert (history["kind"], history["state"]) == ("tuning", "training")
        assert history["tunings"] == [{"name": "polite", "stage": "tuning", "done": 1, "total": 4}]
        assert not history["can_control"] and not watched.has_model
    assert watched.about()["state"] == "stopped"
    out.mkdir()
    assert watched.history()["state"] == "finished"


def test_only_the_servers_own_page_controls_and_only_where_it_may(run: Path) -> None:
    for how, headers, status, word in [
        ({}, PAGE, 400, "this server may only look"),
        ({"can_control": True}, {}, 403, "only the page of this server"),
        ({"can_control": True}, {"origin": "http://evil.example"}, 403, "pages of other sites"),
        ({"can_control": True}, PAGE, 400, "no process trains it"),
    ]:
        with served(run, **how) as client:
            answer = client.post("/runs/stop", json={"model": "gpt"}, headers=headers)
            assert answer.status_code == status and word in answer.json()["error"]["message"]
    with served(run, Guard(origin="http://other:1"), can_control=True) as client:
        headers = {"origin": "http://other:1"}  # which may ask, but not for this
        assert client.post("/runs/stop", json={}, headers=headers).status_code == 403
        finished = client.post("/runs/resume", json={}, headers=PAGE)
        assert finished.status_code == 400 and "is finished" in finished.text


def test_only_the_process_that_holds_a_lock_is_asked_to_end(tmp_path: Path) -> None:
    lock = tmp_path / atomic.LOCK
    assert holders.holder_of(lock) is None and not atomic.is_locked(tmp_path)
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        with lock.open() as looking:  # which has it open, and does not hold it
            assert atomic.is_locked(tmp_path) and holders.holder_of(lock) == process.pid
            assert looking.readable() and holders.end_holder(lock)
        assert process.wait(20) == -15
        subprocess.run(["kill", str(child)], check=True)
    assert not holders.end_holder(lock)


@pytest.mark.full
def test_a_training_is_stopped_saved_and_resumed(tmp_path: Path) -> None:
    text, folder = shelf.made("text", runs.write_text), tmp_path / "gpt"
    small = [word for setting in TINY for word in ("--set", setting)]
    command = [sys.executable, "-m", "foreword", "pretrain", "gpt2_tiny", "--data", str(text),
               "--out", str(folder), "--steps", "20000", "--quiet", *small]  # fmt: skip
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as training,
        served(tmp_path / "gpt", can_control=True) as client,
    ):

        def wait(state: str, step: int = 0) -> dict[str, Any]:
            for _ in range(600):
                known = (folder / "run.json").is_file()
                now = client.get("/runs/gpt").json() if known else {"state": "", "step": 0}
                if now["state"] == state and now["step"] >= step:
                    return dict(now)
                time.sleep(0.2)
            raise AssertionError(f"not {state}: {now}")

        wait("training", 3)
        stopped = client.post("/runs/stop", json={}, headers=PAGE)
        assert stopped.status_code == 200, stopped.text
        assert training.wait(60) == 130
        now = wait("stopped")
        assert now["checkpoints"][-1] == now["step"] < 20000
        assert client.post("/runs/resume", json={}, headers=PAGE).status_code == 200
        twice = client.post("/runs/resume", json={}, headers=PAGE)
        assert twice.status_code == 400
        assert wait("training", now["step"] + 1)["state"] == "training"
        assert client.post("/runs/stop", json={}, headers=PAGE).status_code == 200
        assert wait("stopped")["step"] > now["step"]


@pytest.mark.parametrize("is_first", [False, True])
def test_what_is_written_for_those_who_watch_leaves_folders_as_they_were(
    tmp_path: Path, is_first: bool
) -> None:
    parent = tmp_path / "tuned"
    if not is_first:
        parent.mkdir()
    with stages.watchable(stages.Silent(), parent / ".one.progress") as shown:
        shown.stage("training")(1, 2)
        known = stages.read_progress(parent / ".one.progress")
        assert known == {"stage": "training", "done": 1, "total": 2}
    assert parent.exists() != is_first
    assert stages.read_progress(parent / ".one.progress") is None
    assert not list(tmp_path.rglob("*.progress"))
