"""Text at URLs is read as files are."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")

import fsspec

import foreword
from foreword.data.fingerprint import file_state
from foreword.data.holdout import SplitFiles
from foreword.data.read_documents import find_files, read_documents
from foreword.data.remote import storage_of
from foreword.errors import UserError
from tests.train import runs

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


@pytest.fixture
def stored(bucket: str) -> str:
    """The folder of a bucket, with text of which each file is another."""
    system, path = storage_of(bucket)
    system.pipe(f"{path}/texts/a.jsonl.gz", gzip.compress(LINES))
    return f"{bucket}/texts"


@pytest.mark.full
def test_buckets_of_s3_are_cleaned(stored: str, tmp_path: Path) -> None:
    pytest.importorskip("datatrove")
    out = foreword.clean(
        stored, tmp_path / "out", settings=["clean.steps[1]=language"], workers=1, progress=False
    )
    assert out.report["read"]["documents"] == 3


def test_what_a_bucket_lacks_is_one_line(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for url, message in [
        (f"{stored}/nothing", "s3://corpus/texts/nothing: there is no such"),
        ("s3://none/texts", "bucket does not exist"),
        ("http://127.0.0.1:1/a.jsonl", "cannot be read: Cannot connect"),
    ]:
        with pytest.raises(UserError, match=message) as caught:
            find_files([url])
        assert "\n" not in str(caught.value)


@pytest.mark.full
def test_a_run_of_text_at_urls_goes_on_after_its_shards_were_lost(
    bucket: str, tmp_path: Path
) -> None:
    system, path = storage_of(bucket)
    system.put(f"{runs.write_text(tmp_path / 'text')}/", f"{path}/run/", recursive=True)
    run = tmp_path / "run"
    texts = [f"{bucket}/run/{number}.txt" for number in range(6)]
    recipe = runs.recipe(steps=4, checkpoints=2)
    whole = foreword.pretrain(recipe, texts[1:], run, heldout=texts[:1], progress=False)
    shutil.rmtree(max((run / "checkpoints").iterdir()))
    shutil.rmtree(run / "shards")
    assert foreword.resume(run, progress=False).loss == whole.loss


def test_held_out_text_at_a_url_is_not_trained_on_too(memory: Any) -> None:
    memory.pipe("/held/same.jsonl", LINES)
    memory.pipe("/held/other.jsonl", LINES.replace(b"text 2", b"text 3"))
    trained = find_files(["memory://texts/a.jsonl"])
    assert SplitFiles.find(trained, heldout=["memory://held/other.jsonl"]).heldout
    with pytest.raises(UserError, match="is in both"):
        SplitFiles.find(trained, heldout=["memory://texts/*.jsonl"])
    with pytest.raises(UserError, match=r"same\.jsonl: has the same content as memory://texts/a"):
        SplitFiles.find(trained, heldout=["memory://held"])
