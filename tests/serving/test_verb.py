"""The command: what it refuses before it listens, and a process that a signal ends."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from pathlib import Path

import httpx
import pytest

from foreword import app, serve
from foreword.errors import UserError
from foreword.text.tokenizer import Tokenizer
from foreword.verbs.serve import Serve
from tests import forking
from tests.evaluation.conftest import recipe_of, write_run


@pytest.fixture
def run(tmp_path: Path, bpe: Tokenizer) -> Path:
    return write_run(tmp_path / "gpt", recipe_of("decoder", "rotary"), bpe)


def test_what_cannot_be_served_is_refused_in_one_line(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FOREWORD_TOKEN", raising=False)
    with pytest.raises(UserError, match=r"--host 0.0.0.0: opens the models to every machine"):
        serve(run, host="0.0.0.0")
    with pytest.raises(UserError, match="2 runs are called 'gpt'; tell them apart by --name"):
        serve([run, run])
    with pytest.raises(UserError, match="--name: 1 for 2 runs"):
        serve([run, run], name=["a"])
    with pytest.raises(UserError, match="--name: must not be empty"):
        serve(run, name=[""])
    with pytest.raises(UserError, match="--token: a header carries letters"):
        serve(run, token="sécret")
    with pytest.raises(UserError, match=r"--origin \*: expected scheme and host"):
        serve(run, origin="*")
    with pytest.raises(UserError, match="no such folder"):
        serve(run.with_name("other"), port=0)
    with pytest.raises(UserError, match=r"--together: 1,024 texts of each model need"):
        serve(run, port=0, together=1024, length=2**31)
    in_use = pytest.raises(UserError, match="in use; choose another, or 0 for a free one")
    with socket.create_server(("127.0.0.1", 0)) as other, in_use:
        serve(run, port=other.getsockname()[1])


def test_a_signal_ends_the_server_once_what_is_begun_is_finished(run: Path) -> None:
    (outputs, out), (errors, err) = os.pipe(), os.pipe()
    with Path(os.devnull).open() as null:
        words = ["serve", str(run), "--port", "0", "--json"]
        process = forking.start(words, {0: null.fileno(), 1: out, 2: err})
    os.close(out)
    os.close(err)
    with os.fdopen(outputs) as stdout, os.fdopen(errors) as stderr:
        assert "gpt: completions" in stderr.readline()
        url = stderr.readline().split()[2].rstrip(",")
        body = {"prompt": "The cat", "max_tokens": 2000, "min_tokens": 2000, "stream": True}
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=120) as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("data: {")
            os.kill(process.pid, signal.SIGTERM)
            assert [line for line in lines if line][-1] == "data: [DONE]"
        assert process.wait() == 0
        assert "finishing what is begun" in stderr.read()
        assert '"requests": 1' in stdout.read()


def test_a_page_is_written_as_a_file_about_some_sentences(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "class.html"
    with pytest.raises(UserError, match="--sentence: is for --export"):
        app(run, sentence=["The cat sat."])
    written = app(run, export=file, sentence=["The cat sat."])
    (row,) = written.data()["page"]
    text = file.read_text()
    assert row["bytes"] == file.stat().st_size and row["texts"] == 1 < row["answers"]
    assert "The cat sat." in text and str(tmp_path) not in text
    assert "src=" not in text and 'href="http' not in text


def test_a_page_opens_on_what_has_no_model_yet(run: Path, tmp_path: Path) -> None:
    grid = tmp_path / "grid"
    grid.mkdir()
    (grid / "grid.toml").write_text('description = "two"\n')
    shutil.rmtree(run / "checkpoints")
    server = Serve([run, grid]).server(["gpt", "grid"], watches=True)
    assert not server.models
    assert [one.about()["kind"] for one in server.watched.values()] == ["run", "comparison"]
    with pytest.raises(UserError, match="no checkpoint"):
        Serve([run]).server(["gpt"])
