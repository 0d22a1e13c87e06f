from __future__ import annotations

import bz2
import gzip
import json
import lzma
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from foreword.data.read_documents import find_files, read_documents
from foreword.data.text_files import ReadCounts, ReadSettings
from foreword.errors import UserError

TEXTS = ["One text.\nOf two lines.", "Zwei: äöü 한국어 🙂", "three"]


def read(path: Path, **settings: str) -> list[str]:
    return [d.text for d in read_documents([path], ReadSettings(**settings))]  # type: ignore[arg-type]


def fails(path: Path, **settings: str) -> str:
    with pytest.raises(UserError) as caught:
        read(path, **settings)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def jsonl(texts: list[str], field: str = "text") -> bytes:
    return "".join(json.dumps({"id": n, field: t}) + "\n" for n, t in enumerate(texts)).encode()


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


@pytest.mark.parametrize("end", ["", ".gz", ".zst", ".bz2", ".xz"])
@pytest.mark.parametrize("kind", ["line", "jsonl"])
def test_compressed_text_reads_as_plain(tmp_path: Path, kind: str, end: str) -> None:
    texts = [text.replace("\n", " ") for text in TEXTS]
    data = jsonl(texts) if kind == "jsonl" else "\n".join(texts).encode()
    path = tmp_path / f"a.{'jsonl' if kind == 'jsonl' else 'txt'}{end}"
    pack = {".gz": gzip.compress, ".zst": zstd, ".bz2": bz2.compress, ".xz": lzma.compress}
    path.write_bytes(pack.get(end, bytes)(data))
    assert read(path, documents="line") == texts


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c"])
def test_lines_end_at_line_feeds_and_carriage_returns_alone(
    tmp_path: Path, end: str, mark: str
) -> None:
    texts = ["one", f"a{mark}b", "three"]
    for name, lines in (("a.txt", texts), ("a.jsonl", [json.dumps({"text": t}) for t in texts])):
        (tmp_path / name).write_bytes(f"\ufeff{end.join(lines)}".encode())
        assert read(tmp_path / name, documents="line") == texts


def test_members_of_a_compressed_file_are_all_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    assert read(path, documents="line") == ["one", "two"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), "str")])
def test_parquet_of_every_text_type_is_read(tmp_path: Path, kind: pa.DataType) -> None:
    path = tmp_path / "a.parquet"
    column = pa.array([*TEXTS, None, "  "]).cast(kind)
    parquet.write_table(pa.table({"n": range(5), "body": column}), path)
    counts = ReadCounts()
    documents = list(read_documents([path], ReadSettings(field="body"), counts))
    assert [d.text for d in documents] == TEXTS
    assert documents[1].source == f"{path}:2"
    assert (counts.documents, counts.empty_documents) == (3, 2)
    assert "columns are: n, body" in fails(path)
    assert "not text but int64" in fails(path, field="n")


@pytest.mark.parametrize("end", ["gz", "zst"])
def test_compressed_parquet_leaves_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    plain, path = tmp_path / "a.parquet", tmp_path / f"b.parquet.{end}"
    parquet.write_table(pa.table({"text": TEXTS * 500}), plain, compression="none")
    compress = gzip.compress if end == "gz" else zstd
    path.write_bytes(compress(plain.read_bytes()))
    counts = ReadCounts()
    documents = list(read_documents([path], None, counts))
    assert [d.text for d in documents] == TEXTS * 500
    assert documents[1].source == f"{path}:2"
    assert counts.bytes_read == path.stat().st_size
    assert "columns are: text" in fails(path, field="body")
    path.write_bytes(path.read_bytes()[:-200])
    fails(path)
    path.write_bytes(compress(b"no Parquet"))
    assert "not a Parquet file" in fails(path)
    assert not list((tmp_path / "temporary").iterdir())


def test_parquet_is_not_read_ahead(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = [f"{number} {'word ' * 200}" for number in range(8000)]
    parquet.write_table(
        pa.table({"text": texts}),
        path,
        row_group_size=500,
        use_dictionary=False,
        compression="none",
    )
    before, most = pa.total_allocated_bytes(), 0
    for _ in read_documents([path]):
        most = max(most, pa.total_allocated_bytes() - before)
    assert path.stat().st_size > 8e6 and most < 4e6


def test_truncated_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"text": TEXTS * 100}), path)
    path.write_bytes(path.read_bytes()[:-40])
    assert "cut short" in fails(path)


def test_damaged_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"text": [str(n) * 40 for n in range(5000)]}), path)
    data = bytearray(path.read_bytes())
    data[4:2000] = b"\xff" * 1996
    path.write_bytes(data)
    assert "unreadable" in fails(path)


@pytest.mark.parametrize(
    ("documents", "expected", "lines"),
    [
        ("file", ["one\ntwo\n\n \nthree"], [None]),
        ("paragraph", ["one\ntwo", "three"], [1, 5]),
        ("line", ["one", "two", "three"], [1, 2, 5]),
    ],
)
def test_plain_text_is_split_into_documents(
    tmp_path: Path, documents: str, expected: list[str], lines: list[int | None]
) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n\r\n \r\nthree\r\n")
    settings = ReadSettings(documents=documents)  # type: ignore[arg-type]
    counts = ReadCounts()
    actual = list(read_documents([path], settings, counts))
    assert [d.text for d in actual] == expected
    assert [d.source for d in actual] == [str(path) if n is None else f"{path}:{n}" for n in lines]
    assert counts.empty_documents == (2 if documents == "line" else 0)
    assert counts.bytes_read == path.stat().st_size


@pytest.mark.parametrize("documents", ["file", "line", "paragraph"])
def test_bytes_that_are_not_utf8_are_refused_or_replaced(tmp_path: Path, documents: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfgood \xef\xbf\xbd line\nbad \xff\xe2\x82 line\n")
    assert "byte 21 (0xff) is not UTF-8" in fails(path, documents=documents)
    counts = ReadCounts()
    settings = ReadSettings(documents=documents, errors="replace")  # type: ignore[arg-type]
    text = "\n".join(d.text for d in read_documents([path], settings, counts))
    assert text == "good \ufffd line\nbad \ufffd\ufffd line"
    assert counts.replaced_bytes == 3  # the mark that stood there is not counted


def test_utf16_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("hello".encode("utf-16"))
    assert "looks like UTF-16" in fails(path)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"text": "cut', "not JSON (character 10: unterminated string);"),
        ('{"text": "cut" "n": 1}', "not JSON (character 16: expecting ',' delimiter);"),
        ("[1]", "not a JSON object but list"),
        ('{"title": "a", "body": "b"}', "its fields are: title, body"),
        ('{"text": 3}', "not text but int"),
        ('{"text": "a \\ud800 half"}', r"character 3: \ud800 is half a character"),
        ('{"text": "a", "n": ' + "1" * 5000 + "}", "not JSON"),
        ('{"text": ' + "[" * 100_000, "not JSON"),
    ],
)
def test_broken_json_lines_are_refused(tmp_path: Path, line: str, expected: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "fine"}\n\n' + line + "\n")
    message = fails(path)
    assert f"{path}:3:" in message
    assert expected in message


def test_null_text_is_an_empty_document(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": null}\n{"text": "a\\r\\nb"}\n{"text": "\\n"}\n')
    counts = ReadCounts()
    assert [d.text for d in read_documents([path], None, counts)] == ["a\nb"]
    assert counts.empty_documents == 2


@pytest.mark.parametrize("end", ["gz", "zst"])
def test_broken_compression_is_refused(tmp_path: Path, end: str) -> None:
    path = tmp_path / f"a.txt.{end}"
    path.write_bytes(b"this is not compressed")
    assert "not readable" in fails(path)
    data = b"".join(b"%d\n" % (n * n) for n in range(100_000))
    whole = gzip.compress(data) if end == "gz" else zstd(data)
    path.write_bytes(whole[: len(whole) // 2])
    assert "not readable" in fails(path, documents="line")


def test_find_files_expands_folders_and_patterns(tmp_path: Path) -> None:
    for name in ("b.txt", "deep/er/a.jsonl.zst", "deep/c.TXT", "deep/x.pdf", "deep/README"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "deep" / "gone.txt").symlink_to("nowhere.txt")
    counts = ReadCounts()
    files = find_files([tmp_path / "deep", str(tmp_path / "*.txt"), tmp_path / "b.txt"], counts)
    names = [str(path.relative_to(tmp_path)) for path in files]
    assert names == ["b.txt", "deep/c.TXT", "deep/er/a.jsonl.zst"]
    assert counts.skipped == {".pdf": 1, "README": 1, "broken link": 1, "named twice": 1}


def test_find_files_refuses_inputs_without_text(tmp_path: Path) -> None:
    (tmp_path / "x.pdf").write_text("x")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "broken").symlink_to("nowhere.txt")
    for given, message in (
        ([tmp_path / "none.txt"], "no such file"),
        ([tmp_path / "*.txt"], "no such file"),
        ([tmp_path], "no text file in it"),
        ([tmp_path / "x.pdf"], "no reader"),
        ([tmp_path / "loop"], "loop: is a broken or circular link"),
        ([tmp_path / "brok*"], "broken: is a broken or circular link"),
        ([], "no text was given"),
    ):
        with pytest.raises(UserError, match=message):
            find_files(given)


def test_files_without_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"")
    assert "contains no text" in fails(path)
    path.write_bytes(b" \n\n")
    assert "contains no text" in fails(path)
    (tmp_path / "b.txt").write_text("text")
    counts = ReadCounts()
    path.write_bytes(b"")
    assert len(list(read_documents([tmp_path], None, counts))) == 1
    assert (counts.files, counts.empty_files) == (2, 1)
