"""Pages of web archives become documents; those that cannot are counted by reason."""

from __future__ import annotations

import gzip
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("fastwarc")
pytest.importorskip("resiliparse")

from foreword.data import web_page
from foreword.data.prepared_text import data_warnings
from foreword.data.read_documents import read_documents
from foreword.data.readers import warc
from foreword.data.text_files import ReadCounts
from foreword.errors import UserError
from tests.data.archives import READ, record


def read(path: Path, *records: bytes) -> tuple[list[str], ReadCounts]:
    """Write an archive, and return its texts and the counts of reading."""
    pack = gzip.compress if path.suffix == ".gz" else bytes
    path.write_bytes(b"".join(map(pack, records)))
    counts = ReadCounts()
    return [document.text for document in read_documents([path], None, counts)], counts


@pytest.mark.parametrize("end", ["", ".gz"])
def test_the_main_content_of_pages_is_read(tmp_path: Path, end: str) -> None:
    archive = tmp_path / f"a.warc{end}"
    about = [record(kind=kind) for kind in ("warcinfo", "request", "metadata", "revisit")]
    texts, counts = read(archive, *about, record(), record(kind="resource"), record(""))
    assert texts == [READ, READ]
    assert (counts.documents, counts.empty_documents, counts.left) == (2, 1, {})
    assert counts.bytes_read == archive.stat().st_size
    (first, *_) = read_documents([archive])
    assert first.source == f"{archive}:5 https://a.example/response"


def test_text_that_a_crawler_extracted_is_read(tmp_path: Path) -> None:
    texts, counts = read(
        tmp_path / "a.warc.wet.gz",
        record("Eins.\nZwei <b>.", kind="conversion", type_="text/plain"),
        record("robots", type_="text/plain"),
    )
    assert texts == ["Eins.\nZwei <b>."]
    assert counts.left == {"of type text/plain": 1}


def test_pages_that_are_not_read_are_counted_by_reason(tmp_path: Path) -> None:
    texts, counts = read(
        tmp_path / "a.warc",
        record(),
        record(b"\x89PNG", type_="image/png"),
        record("<p>Gone", status="404 Not Found"),
        record(headers="Content-Encoding: gzip\r\n"),
        record("<p>Too short", length=20),
        record("<p>No number", length="many"),
        b"rubbish\r\nof two lines\r\n\r\n",
        record("<div>" * (web_page.DEEPEST + 1) + "deep"),
        record(bytes(range(128, 256)) * 9, headers="X: y\r\n", type_="text/html; charset=euc-kr"),
        record(),
    )
    assert texts == [READ, READ]
    assert counts.left == {
        "of type image/png": 1,
        "status 404": 1,
        "broken": 3,
        "nested too deeply": 1,
        "charset unknown": 1,
    }
    (warning,) = data_warnings(asdict(counts)).items()
    assert warning[0].startswith("texts not read (1 of type image/png, ") and warning[1] == 7


def test_large_records_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warc, "LARGEST", 1000)
    bomb = record(gzip.compress(b" " * 5000), headers="Content-Encoding: gzip\r\n")
    texts, counts = read(tmp_path / "a.warc", record("x" * 2000), bomb, record())
    assert texts == [READ]
    assert counts.left == {"larger than 0 MB": 2}


@pytest.mark.parametrize(
    ("text", "charset", "declared"),
    [
        ("안녕하세요 여러분", "euc-kr", "server"),
        ("안녕하세요 여러분", "euc-kr", "page"),
        ("Ein schöner Tag", "utf-8", "wrong"),
        ("Ein schöner Tag in Köln über allen Dächern", "latin-1", "nowhere"),
        ("こんにちは世界", "iso-2022-jp", "server"),
        ("Grüße", "utf-16", "nowhere"),
    ],
)
def test_charsets_are_those_declared_or_detected(
    tmp_path: Path, text: str, charset: str, declared: str
) -> None:
    meta = f"<meta charset={charset}>" if declared == "page" else ""
    named = {"server": charset, "wrong": "iso-8859-1"}.get(declared, "")
    kind = f"text/html; charset={named}" if named else "text/html"
    page = f"{meta}<p>{text}</p>".encode(charset)
    texts, counts = read(tmp_path / "a.warc", record(page, type_=kind))
    assert (texts, counts.replaced_bytes) == ([text], 0)


def test_a_page_cut_within_a_character_is_read_and_its_bytes_counted(tmp_path: Path) -> None:
    page = ("<p>" + "ä" * 50).encode()[:-1]
    texts, counts = read(tmp_path / "a.warc", record(page))
    assert texts == ["ä" * 49 + "\ufffd"]
    assert counts.replaced_bytes == 1


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.warc.gz", gzip.compress(record() * 50)[:-9], "not readable .*fetch .* again"),
        ("a.warc", (record() * 3)[:-50], "ends within record 3; fetch it again"),
        ("a.warc", b"hello\n", "not a web archive"),
    ],
)
def test_an_archive_that_is_cut_or_is_none_is_refused(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=f"{name}: {message}") as caught:
        list(read_documents([tmp_path / name]))
    assert "\n" not in str(caught.value)


def test_archives_without_the_extra_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warc, "PACKAGES", ("fastwarcs",))
    with pytest.raises(UserError, match=r"require fastwarcs: pip install 'foreword\[data\]'"):
        read(tmp_path / "a.warc", record())
