"""The panels of runs and tuned models in a browser: their numbers are those of the server."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from foreword import tune
from foreword.disk import atomic
from foreword.serving import recording
from foreword.serving.app import Server
from foreword.serving.served import Capacity, Served
from foreword.serving.watched import Watched
from foreword.verbs._load import load
from tests import shelf
from tests.serving.site import accessible, browsing, serving, watching_tab
from tests.serving.test_watched import HOLD, write_run
from tests.tuning.runs import make_run, reviews

HOSTILE = '<img src=/x onerror="document.title=1">'
TEXT = f"the cat ran near {HOSTILE} the old river"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsing() as browser:
        yield browser


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return shelf.copied("watched", write_run, tmp_path / "run")


def bits(url: str, model: str, text: str) -> list[float]:
    """Return the surprise of each token by /score."""
    answer = httpx.post(f"{url}/score", json={"model": model, "text": text}).json()
    return [token["nats"] / math.log(2) for token in answer["data"][0]["scored"]]


def test_the_time_machine_shows_what_score_says_of_each_checkpoint(browser: Any, run: Path) -> None:
    watched = Watched(HOSTILE, run)
    with serving({HOSTILE: load(run, "cpu")}, [watched]) as url, watching_tab(browser, url) as tab:
        tab.goto(f"{url}/#time?text={httpx.QueryParams({'': TEXT})}".replace("text==", "text="))
        rows = tab.locator(".learned tbody tr")
        tab.wait_for_selector(f".learned tbody tr:nth-child({len(watched.steps)})")
        for n, step in enumerate(watched.steps):
            shown = rows.nth(n).locator("td").all_inner_texts()
            known = [float(value) for value in shown if value != "–"]
            name = HOSTILE if n == len(watched.steps) - 1 else f"{HOSTILE}@{step}"
            assert known == pytest.approx(bits(url, name, TEXT), abs=0.051)
        tab.locator("input[type=range]").fill("0")
        assert f"step {watched.steps[0]}" in tab.inner_text("output")
        assert rows.nth(0).get_attribute("class") == "here"
        first = tab.locator(".under small").all_inner_texts()
        assert [value.split()[0] for value in first] == rows.nth(0).locator("td").all_inner_texts()
        tab.click("text=Play")
        tab.wait_for_selector(".learned tbody tr.here:nth-child(2)")
        assert not tab.query_selector("img") and accessible(tab)


@pytest.mark.full
def test_the_words_that_decide_and_the_errors_are_those_of_predict(
    browser: Any, tmp_path: Path
) -> None:
    dev = tmp_path / "dev.jsonl"
    rows = [{"text": e.text, "label": e.label} for e in reviews(80, 2)]
    dev.write_text("".join(json.dumps(row) + "\n" for row in rows))
    train = [(e.text, e.label) for e in reviews(60, 1)] + [("the film we saw", HOSTILE)] * 9
    settings: dict[str, Any] = {"seeds": 1, "epochs": 2, "lr": 3e-3, "device": "cpu"}
    tuned = tune(
        make_run(tmp_path / "run"), train, dev, strategy="full", progress=False, **settings
    )
    with serving({"tuned": load(tuned.out, "cpu")}) as url, watching_tab(browser, url) as tab:

        def predicted(texts: list[str]) -> list[dict[str, Any]]:
            body = {"data": texts, "probabilities": True}
            return list(httpx.post(f"{url}/predict", json=body).json()["data"])

        # Each weight is the whole probability less that without the word.
        tab.goto(f"{url}/#tuned")
        tab.fill("textarea", "the film was lovely")
        tab.click("text=Predict")
        tab.wait_for_selector(".answer")
        assert HOSTILE in tab.inner_text(".answer") and not tab.query_selector("img")
        tab.click("text=Leave out each word")
        tab.wait_for_selector(".under")
        weights = tab.eval_on_selector_all(".under", "all => all.map(e => +e.dataset.weight)")
        texts = ["film was lovely", "the was lovely", "the film lovely", "the film was"]
        whole, *parts = predicted(["the film was lovely", *texts])
        key = f"probability_{whole['prediction']}"
        assert weights == pytest.approx([whole[key] - part[key] for part in parts], abs=1e-6)

        # The errors on its own examples, and on a file, are those of /predict.
        answers = [row["prediction"] for row in predicted([row["text"] for row in rows])]
        wrong = [n for n, row in enumerate(rows) if row["label"] != answers[n]]
        told = f"{len(wrong)} of {len(rows)} wrong"
        tab.click("text=Examples it was scored on")
        tab.wait_for_selector(f"text={told}")
        lines = "".join(f'"{row["text"]}",{row["label"]}\r\n' for row in rows)
        file = {
            "name": "dev.csv",
            "mimeType": "text/csv",
            "buffer": f"text,label\r\n{lines}".encode(),
        }
        tab.set_input_files("input[type=file]", file)
        tab.click("text=Predict 80 rows")
        tab.wait_for_selector(f"text={told}")
        tab.uncheck("text=only errors")
        tab.click("th[data-column=number] button")
        numbers = tab.locator(".judged tbody td:first-child").all_inner_texts()
        assert numbers == [str(n) for n in range(1, 51)]
        assert tab.get_attribute("th[data-column=number]", "aria-sort") == "ascending"
        assert accessible(tab)
        tab.click(".judged tbody tr:nth-child(3) button")
        assert tab.input_value("textarea") == rows[2]["text"]
        lines = f"text\tlabel\n{HOSTILE} film\t{HOSTILE}\n"
        hostile = {"name": "a.tsv", "mimeType": "text/plain", "buffer": lines.encode()}
        tab.set_input_files("input[type=file]", hostile)
        tab.click("text=Predict 1 rows")
        tab.wait_for_selector("text=of 1 wrong")
        assert not tab.query_selector("img")


@pytest.mark.parametrize("is_bound", [True, False])
def test_losses_that_are_bounds_say_so(
    browser: Any, run: Path, tmp_path: Path, is_bound: bool
) -> None:
    log = run / "metrics.jsonl"
    if is_bound:
        mark = '"kind": "heldout", "is_bound": true'
        log.write_text(log.read_text().replace('"kind": "heldout"', mark))
    grid = tmp_path / "grid"
    (grid / "runs").mkdir(parents=True)
    (grid / "grid.toml").write_text('cells = [{label = "a"}]\n')
    (grid / "runs" / "a-1").symlink_to(run)
    some = [Watched("run", run), Watched("grid", grid)]
    with serving({}, some) as url, watching_tab(browser, url) as tab:
        tab.goto(f"{url}/#watch")
        tab.wait_for_selector("td:has-text('100 %')")
        marked = [*tab.locator(".tile b").all()[1:3], *tab.locator("td.n").all()[2:4]]
        marked += tab.locator(".legend li", has_text="held-out").all()
        assert len(marked) == 5
        assert {"at most" in one.inner_text() for one in marked} == {is_bound}


@pytest.mark.full
def test_a_training_is_watched_and_stopped(browser: Any, run: Path, tmp_path: Path) -> None:
    grid = tmp_path / "grid"
    shelf.copied("watched", write_run, grid / "runs" / "a-1")
    (grid / "grid.toml").write_text('description = "two"\nseeds = 2\ncells = [{label = "a"}]\n')
    table = {"title": HOSTILE, "columns": ["cell"], "rows": [[HOSTILE]]}
    (grid / "results.json").write_text(json.dumps({"tables": [table]}))
    some = [Watched(HOSTILE, run, can_control=True), Watched("grid", grid)]
    command = [sys.executable, "-c", HOLD, str(run)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as training,
        serving({}, some) as url,
        watching_tab(browser, url) as tab,
    ):
        assert training.stdout is not None
        child = int(training.stdout.readline())
        tab.goto(f"{url}/#watch")
        tab.wait_for_selector("text=1 of 2 trainings")
        card = tab.locator(".watched").first
        assert "in training" in card.inner_text() and "step 12" in card.inner_text()
        record = {"kind": "train", "step": 13, "loss": 1.5, "tokens": 9, "flops": 1.0, "seconds": 1}
        with (run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
        tab.wait_for_selector("text=step 13")
        assert accessible(tab) and not tab.query_selector("img")
        card.locator("text=Save and stop").click()
        assert training.wait(20) == -15
        subprocess.run(["kill", str(child)], check=True)
        tab.wait_for_selector(".pill.training", state="detached")
        assert not atomic.is_locked(run)


def test_a_page_without_a_server_shows_the_same_numbers(
    browser: Any, run: Path, tmp_path: Path
) -> None:
    texts, file = [TEXT, "the dog sat. </script> <!-- the road"], tmp_path / "class.html"
    watched = Watched("run", run)
    server = Server([Served("run", load(run, "cpu"), Capacity())], 1 << 20, [watched])
    try:
        recording.write(server, texts, file, lambda line: None)
    finally:
        server.close()
    assert str(tmp_path) not in file.read_text()
    with (
        serving({"run": load(run, "cpu")}, [watched]) as url,
        watching_tab(browser, file.as_uri()) as tab,
    ):
        for n, text in enumerate(texts):
            tab.goto(f"{file.as_uri()}#time")
            tab.reload()
            tab.wait_for_selector("#foot p")
            tab.select_option(".texts select", str(n))
            tab.wait_for_selector(f".learned tbody tr:nth-child({len(watched.steps)})")
            for row, step in zip(
                tab.locator(".learned tbody tr").all(), watched.steps, strict=True
            ):
                shown = [float(v) for v in row.locator("td").all_inner_texts() if v != "–"]
                assert shown == pytest.approx(bits(url, f"run@{step}", text), abs=0.051)
        panels = tab.eval_on_selector_all("nav a", "all => all.map(a => a.hash)")
        assert panels == ["#sentence", "#inside", "#time"]
        for panel in panels:
            tab.goto(file.as_uri() + panel)
            tab.wait_for_timeout(300)
            assert not tab.query_selector("[role=alert]") and not tab.query_selector("img")
        assert accessible(tab)
