"""Text at URLs is read as files are."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")

import fsspec

from foreword.data.fingerprint import file_state
from foreword.data.read_documents import find_files, read_documents
from foreword.errors import UserError

LINES = "".join(json.dumps({"text": f"text {number}"}) + "\n" for number in range(3)).encode()


@pytest.fixture
def memory() -> Iterator[Any]:
    """A file system in memory, with text in three forms and a file that is not text."""
    system = fsspec.filesystem("memory")
    system.pipe("/texts/a.jsonl", LINES)
    system.pipe("/texts/more/b.jsonl.gz", gzip.compress(LINES))
    system.pipe("/texts/c.png", b"-")
    yield system
    system.store.clear()


@pytest.mark.usefixtures("memory")
def test_files_folders_and_patterns_of_urls_are_read() -> None:
    for source, count in [
        ("memory://texts", 6),
        ("memory://texts/a.jsonl", 3),
        ("memory://texts/*.jsonl", 3),
    ]:
        assert len(list(read_documents([source]))) == count
    (first, *_) = read_documents(["memory://texts/a.jsonl"])
    assert first.source == "memory://texts/a.jsonl:1"


def test_parquet_at_a_url_is_read(memory: Any) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    with memory.open("/texts/d.parquet", "wb") as file:
        parquet.write_table(pa.table({"text": ["one", "two"]}), file)
    assert [one.text for one in read_documents(["memory://texts/d.parquet"])] == ["one", "two"]


def test_a_changed_file_has_another_state(memory: Any) -> None:
    (file,) = find_files(["memory://texts/a.jsonl"])
    before = file_state(file)
    memory.pipe("/texts/a.jsonl", LINES)
    assert file_state(file) != before


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("memory://nothing", "there is no such file"),
        ("memory://texts/c.png", "no reader"),
        ("nosuch://x/y.txt", "cannot be read: Protocol not known"),
    ],
)
@pytest.mark.usefixtures("memory")
def test_a_url_that_cannot_be_read_is_one_line(url: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        find_files([url])
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket of a server on this machine that answers as S3 does."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0)
    s3fs = pytest.importorskip("s3fs")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "none")
        server.start()
        host, port = server.get_host_and_port()
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        system = s3fs.S3FileSystem()
        system.mkdir("corpus")
        system.pipe("corpus/texts/a.jsonl.gz", gzip.compress(LINES))
        yield "s3://corpus/texts"
        server.stop()
        s3fs.S3FileSystem.clear_instance_cache()


def test_buckets_of_s3_are_cleaned(bucket: str, tmp_path: Path) -> None:
    pytest.importorskip("datatrove")
    import foreword

    out = foreword.clean(
        bucket, tmp_path / "out", settings=["clean.steps[1]=language"], workers=1, progress=False
    )
    assert out.report["read"]["documents"] == 3
    with pytest.raises(UserError, match="s3://corpus/nothing: there is no such"):
        find_files(["s3://corpus/nothing"])
