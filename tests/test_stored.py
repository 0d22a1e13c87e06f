"""Written files are read back, damaged ones never."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from foreword.disk import manifest, stored
from foreword.errors import DamagedError, UserError
from tests.damage import flip

DOCUMENT = {"texts": ["/a/b", "한글", "half \udc80"], "n": 3, "x": [1e-3, 1e300], "no": None}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    stored.write(tmp_path / "a.json", DOCUMENT)
    return tmp_path / "a.json"


def content(path: Path) -> dict[str, object]:
    return {key: value for key, value in stored.read(path).items() if key != stored.CHECKSUM}


def test_a_written_file_reads_back_equal(file: Path) -> None:
    assert content(file) == DOCUMENT
    stored.write(file, stored.read(file) | {"n": 4})
    assert content(file) == DOCUMENT | {"n": 4}


def test_every_flipped_bit_is_found(file: Path) -> None:
    data = file.read_bytes()
    for bit in range(8 * len(data)):
        file.write_bytes(flip(data, bit))
        try:
            document = stored.read(file)
        except DamagedError:
            continue
        # Of the checksum's own name nothing else is damaged; blanks are one as the other.
        assert {key: document[key] for key in DOCUMENT if key in document} == DOCUMENT
        assert len(document) == len(DOCUMENT) + 1


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    value = {"x": [math.nan, 1.5, {"y": (-math.inf, "NaN")}], "half": "\ud800"}
    plain = {"x": [None, 1.5, {"y": [None, "NaN"]}], "half": "\ud800"}
    text = stored.to_json(value)
    assert json.loads(text, parse_constant=pytest.fail) == plain
    assert text.isascii()
    assert json.loads(stored.to_json(value, indent=1)) == plain
    stored.write(tmp_path / "a.json", value)
    assert content(tmp_path / "a.json") == plain


def test_a_file_without_a_checksum_needs_finite_numbers_of_64_bits(file: Path) -> None:
    for text, is_plain in (('{"n": 3}', True), ('{"n": 1e999}', False), ('{"n": NaN}', False)):
        file.write_text(text)
        if is_plain:
            assert stored.read(file) == json.loads(text)
            continue
        with pytest.raises(DamagedError, match="not finite, or too large"):
            stored.read(file)
        assert stored.read(file, is_foreign=True).keys() == {"n"}


def test_a_file_that_others_wrote_is_not_called_damaged(file: Path) -> None:
    file.write_text('{"n": [')
    with pytest.raises(DamagedError, match=r"a\.json: not valid JSON$"):
        stored.read(file, is_foreign=True)
    with pytest.raises(DamagedError, match="damaged"):
        stored.read(file)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw = random.Random(1)
    for name in ("a.bin", "in/b.bin", "c.bin"):
        path = tmp_path / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(draw.randbytes(100))
    manifest.write(tmp_path / "folder", "thing", 1)
    return tmp_path / "folder"


def verify(folder: Path, *unread: str) -> None:
    manifest.verify(folder, "thing", 1, ("a.bin",), unread)


def test_flipped_bits_of_files_and_their_manifest_are_found(folder: Path) -> None:
    verify(folder)
    draw = random.Random(2)
    for name in ("a.bin", "in/b.bin", manifest.FILE):
        data = (folder / name).read_bytes()
        for _ in range(200):
            (folder / name).write_bytes(flip(data, draw.randrange(8 * len(data))))
            try:
                verify(folder)
            except DamagedError:
                continue
            assert name == manifest.FILE
            assert stored.read(folder / name)["files"] == json.loads(data)["files"]
        (folder / name).write_bytes(data)


def test_files_that_are_not_read_are_checked_by_size(folder: Path) -> None:
    (folder / "c.bin").write_bytes(bytes(100))
    verify(folder, "c.bin")
    with pytest.raises(DamagedError, match="does not match its checksum"):
        verify(folder)
    (folder / "c.bin").write_bytes(b"")
    with pytest.raises(DamagedError, match="missing or cut short"):
        verify(folder, "c.bin")


def test_a_manifest_must_list_required_files(folder: Path) -> None:
    with pytest.raises(DamagedError, match=r"does not name d\.bin"):
        manifest.verify(folder, "thing", 1, ("d.bin",))
    with pytest.raises(DamagedError, match="its manifest cannot be read"):
        manifest.verify(folder, "other", 1, ())
    assert manifest.is_of(folder, "thing") and not manifest.is_of(folder, "other")


def test_another_version_is_refused_and_a_flipped_one_is_damage(folder: Path) -> None:
    table = stored.read(folder / manifest.FILE)
    stored.write(folder / manifest.FILE, table | {"foreword_thing": 2})
    with pytest.raises(UserError, match="a thing of version 2; this Foreword reads version 1"):
        verify(folder)
    table["foreword_thing"] = 3
    (folder / manifest.FILE).write_text(json.dumps(table))
    with pytest.raises(DamagedError):
        verify(folder)


def test_deep_nesting_is_refused_however_deep(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    for depth in (stored.DEEPEST, stored.DEEPEST + 1, 100_000):
        path.write_text('{"a":' + "[" * (depth - 1) + "]" * (depth - 1) + "}")
        if depth == stored.DEEPEST:
            assert stored.read(path, is_foreign=True)
        else:
            with pytest.raises(DamagedError, match=r"deep\.json: nested too deeply"):
                stored.read(path, is_foreign=True)
