"""User names, passwords and signatures of URLs stay out of files and messages."""

from __future__ import annotations

import base64
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

import foreword
from foreword.cli.main import run as run_command
from foreword.data.remote import storage_of
from foreword.disk import credentials, stored
from foreword.disk.credentials import masked
from foreword.errors import UserError
from tests.train import runs

PASSWORD, SIGNATURE = "S3cretPw", "5ignatur3"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://alice:pw@host:80/t.txt", "http://***@host:80/t.txt"),
        ("s3://key:a/b@bucket/x and ftp://u@h", "s3://***@bucket/x and ftp://***@h"),
        ("http://u:p@q@h/", "http://***@h/"),
        ("foreword x 'https://h/a?x=1&X-Amz-Signature=ab' -y", "foreword x 'https://h/a?***' -y"),
        ("GET /a?sv=1&sig=x%2F HTTP", "GET /a?*** HTTP"),
        ("https://h/a?sig=x&n=1: gone, or so", "https://h/a?***: gone, or so"),
        ("http:/u:p@h/a.txt: gone", "http:/***@h/a.txt: gone"),
        *[
            (text, text)
            for text in (
                "https://example.org/@name/a?v=abc&keyword=x",
                "http://localhost:8080/a@b",
                "mail bob@example.org: is it so? token = 1",
                "C:/a@b and https://example.org:443/a?page=2",
            )
        ],
    ],
)
def test_credentials_in_urls_are_masked(text: str, expected: str) -> None:
    assert masked(text) == expected
    assert masked(expected) == expected
    assert str(UserError(text)) == expected


class _Handler(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        user = base64.b64encode(f"alice:{PASSWORD}".encode()).decode()
        is_known = self.headers["Authorization"] == f"Basic {user}" and SIGNATURE in self.path
        if not is_known:
            self.send_error(403)
        else:
            super().do_GET()

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """The start of URLs, and the folder that is served to who knows password and signature."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(credentials.VARIABLE, "")
    folder = tmp_path / "served"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=folder)) as one:
        threading.Thread(target=one.serve_forever, daemon=True).start()
        yield f"http://alice:{PASSWORD}@127.0.0.1:{one.server_port}", folder
        one.shutdown()


def leaks(folder: Path) -> list[Path]:
    """Return the files that hold a secret."""
    secrets = PASSWORD.encode(), SIGNATURE.encode(), b"alice"
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if any(secret in path.read_bytes() for secret in secrets)]


def test_a_run_keeps_no_credentials_and_asks_for_them_again(
    server: tuple[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url, served = server
    text = runs.write_text(tmp_path / "text")
    whole = "\n".join(file.read_text() for file in sorted(text.iterdir()))
    (served / "t.txt").write_text(whole)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(runs.recipe(steps=4, checkpoints=2).dumps())
    url = f"{url}/t.txt?X-Amz-Expires=60&X-Amz-Signature={SIGNATURE}"
    words = ["pretrain", str(recipe), "--data", url, "--out", str(tmp_path / "run")]
    monkeypatch.setattr("sys.argv", ["foreword", *words])
    assert run_command(words) == 0
    assert run_command(["report", str(tmp_path / "run")]) == 0
    data = stored.read(tmp_path / "run" / "run.json")["data"]
    assert data["fingerprint"] == _fingerprint_of(served / "t.txt", recipe, tmp_path)
    assert not leaks(tmp_path / "run")
    assert not (tmp_path / "cache").exists()

    # Its text is needed again, in a new process.
    monkeypatch.setenv(credentials.VARIABLE, "")
    shutil.rmtree(tmp_path / "run" / "shards")
    assert run_command(["resume", str(tmp_path / "run")]) == 2
    assert "signatures are not kept; give them again, in FOREWORD_URLS=" in capsys.readouterr().err
    monkeypatch.setenv(credentials.VARIABLE, url.replace("=60", "=3600"))
    assert run_command(["resume", str(tmp_path / "run")]) == 0
    wrong = url.replace(PASSWORD, f"{PASSWORD}0")
    assert run_command(["pretrain", str(recipe), "--data", wrong, "--out", f"{tmp_path}/none"]) == 2
    output = capsys.readouterr()
    assert not any(secret in output.out + output.err for secret in (PASSWORD, SIGNATURE, "alice"))


def _fingerprint_of(file: Path, recipe: Path, folder: Path) -> str:
    run = foreword.pretrain(recipe, file, folder / "local", progress=False).run
    return str(stored.read(run / "run.json")["data"]["fingerprint"])


@pytest.mark.full
def test_shards_at_a_url_are_mirrored_without_credentials(
    server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, served = server
    text = runs.write_text(tmp_path / "text")
    made = foreword.prepare(text, served / "shards", kind="word", progress=False)
    recipe = runs.recipe(steps=3)
    here = foreword.pretrain(recipe, made, tmp_path / "here", progress=False)
    url = f"{url}/shards?sig={SIGNATURE}"
    there = foreword.pretrain(recipe, url, tmp_path / "run", progress=False)
    assert there.loss == here.loss
    assert not leaks(tmp_path / "run")
    assert not leaks(tmp_path / "cache")
    monkeypatch.setenv(credentials.VARIABLE, "")
    shutil.rmtree(max((there.run / "checkpoints").iterdir()))
    with pytest.raises(UserError, match="signatures are not kept"):
        foreword.resume(there.run, progress=False)


def test_credentials_given_for_a_folder_or_pattern_hold_for_its_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = "http://a:b@h/x/*.txt http://c:d@h/y?sig=1&n=2"
    monkeypatch.setenv(credentials.VARIABLE, given)
    assert storage_of("http://***@h/x/one.txt")[1] == "http://a:b@h/x/one.txt"
    assert storage_of("http://***@h/y/z/train.bin?***")[1] == "http://c:d@h/y/z/train.bin?sig=1&n=2"
    with pytest.raises(UserError, match=r"http://\*\*\*@g/x\.txt: user names"):
        storage_of("http://***@g/x.txt")


def test_two_urls_that_differ_in_credentials_alone_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"http://h/a\.txt\?\*\*\*: two URLs"):
        foreword.prepare(
            ["http://h/a.txt?id=1&sig=x", "http://h/a.txt?id=2&sig=y"], tmp_path / "out"
        )
