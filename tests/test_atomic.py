"""Files and folders are whole or absent, and a folder has one writer."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foreword.data.text_files import ReadCounts, ReadSettings, TextFile
from foreword.disk import atomic, stored
from foreword.errors import UserError
from foreword.settings import config
from foreword.tables.files import text_lines
from foreword.vectors import file as word_vectors
from foreword.vectors.questions import read_pairs


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fill(path: Path, text: str) -> None:
    with atomic.folder(path) as part:
        (part / "deep").mkdir()
        (part / "deep" / "file").write_text(text)


def text_in(path: Path) -> str:
    return (path / "deep" / "file").read_text()


class Stopped(BaseException):
    """As Ctrl-C stops."""


def stop_at_rename(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """What takes the name `name` is stopped right before."""
    replace = Path.replace

    def stop(self: Path, target: Path) -> Path:
        if Path(target).name == name:
            monkeypatch.undo()
            raise Stopped
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", stop)


def test_a_failed_write_leaves_the_old_content(tmp_path: Path) -> None:
    file = tmp_path / "new" / "file"
    atomic.write_text(file, "old\u2028line\n")
    atomic.write_bytes(file.with_name("bytes"), b"\r\n")
    with pytest.raises(Stopped), atomic.writing(file) as out:
        out.write("half")
        raise Stopped
    assert file.read_bytes() == "old\u2028line\n".encode()
    assert names(file.parent) == ["bytes", "file"]


def test_a_folder_replaces_another(tmp_path: Path) -> None:
    for text in ("one", "two"):
        fill(tmp_path / "folder", text)
        assert text_in(tmp_path / "folder") == text
        assert names(tmp_path) == ["folder"]


@pytest.mark.parametrize("moment", [".folder.old", "folder"])
def test_a_folder_survives_an_interrupt(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "folder", "old")
    stop_at_rename(monkeypatch, moment)
    with pytest.raises(Stopped):
        fill(tmp_path / "folder", "new")
    assert text_in(tmp_path / "folder") == "old"
    assert names(tmp_path) == ["folder"]


def test_a_folder_renamed_before_a_kill_is_restored(tmp_path: Path) -> None:
    fill(tmp_path / "folder", "old")
    (tmp_path / "folder").replace(tmp_path / ".folder.old")
    with pytest.raises(Stopped), atomic.folder(tmp_path / "folder"):
        raise Stopped
    assert text_in(tmp_path / "folder") == "old"
    assert names(tmp_path) == ["folder"]


def test_names_are_flushed_after_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    sync, replace = os.fsync, Path.replace

    def noted_sync(number: int) -> None:
        inode = os.fstat(number).st_ino
        names = [p.name for p in (tmp_path, *tmp_path.rglob("*")) if p.stat().st_ino == inode]
        done.append(f"sync {' '.join(names)}")
        sync(number)

    def noted_replace(self: Path, target: Path) -> Path:
        done.append(f"rename {Path(target).name}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    within = tmp_path / "new"
    atomic.write_text(within / "file", "text")
    assert done == [f"sync {tmp_path.name}", "sync .file.part", "rename file", "sync new"]
    done.clear()
    fill(within / "folder", "text")
    *contents, rename, last = done
    assert sorted(contents) == ["sync .folder.part", "sync deep", "sync file"]
    assert (rename, last) == ("rename folder", "sync new")


def test_a_file_system_that_cannot_sync_folders_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(number: int) -> None:
        raise OSError(code, os.strerror(code))

    code = errno.EINVAL
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setattr(os, "fsync", refuse)
    with atomic.folder(tmp_path / "folder"):
        pass
    code = errno.EIO
    with pytest.raises(UserError, match="cannot be written"), atomic.folder(tmp_path / "folder"):
        pass


AT_WORK = """
import sys
from pathlib import Path
from foreword.disk import atomic

with atomic.locked(Path(sys.argv[1])):
    print("here", flush=True)
    sys.stdin.read()
"""


def test_a_folder_is_locked_by_one_process(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = [sys.executable, "-c", AT_WORK, str(folder)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"here\n"
        message = "run: another process is writing here"
        with pytest.raises(UserError, match=message), atomic.locked(folder):
            raise AssertionError("two are at work")
        other.kill()
        other.wait()
        with atomic.locked(folder):
            pass
    with pytest.raises(Stopped), atomic.locked(folder):
        raise Stopped
    with atomic.locked(folder, wait=True):
        pass


def test_a_lock_that_another_holds_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    lock = (tmp_path / atomic.LOCK).open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    threading.Timer(0.1, lock.close).start()
    with atomic.locked(tmp_path):
        assert lock.closed


def test_a_file_has_one_writer_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with atomic.writing(path) as file:
        file.write("whole")
        with pytest.raises(UserError, match="file: another process or thread is writing it"):
            atomic.write_text(path, "other")
    assert path.read_text(encoding="utf-8") == "whole"
    (tmp_path / ".file.part").write_text("the rest of one that was killed", encoding="utf-8")
    atomic.write_text(path, "new")
    assert path.read_text(encoding="utf-8") == "new"
    assert names(tmp_path) == ["file"]


def test_a_folder_has_one_writer_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with atomic.folder(path) as part:
        (part / "one").touch()
        with pytest.raises(UserError, match="folder: another process or thread is writing it"):
            fill(path, "two")
        assert names(part) == ["one"]
    assert names(path) == ["one"]
    assert names(tmp_path) == ["folder"]
    fill(path, "three")
    assert names(path) == ["deep"]


def test_a_new_file_replaces_none(tmp_path: Path) -> None:
    path = tmp_path / "file"
    atomic.write_text(path, "old")
    with (
        pytest.raises(UserError, match="file: already exists; choose another --out"),
        atomic.writing(path, is_new=True) as file,
    ):
        file.write("new")
    assert path.read_text(encoding="utf-8") == "old"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("name", ["/dev/zero", "pipe"])
@pytest.mark.parametrize(
    "read",
    [
        atomic.read_bytes,
        config.read_toml,
        stored.read,
        lambda path: next(TextFile(path, ReadSettings(), ReadCounts()).lines()),
        lambda path: next(text_lines(path)),
        word_vectors.read,
        read_pairs,
    ],
)
def test_what_may_never_end_is_not_read(
    name: str, read: Callable[[Path], Any], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="is a device, a pipe or a socket; save its content"):
        read(tmp_path / name)


def test_the_root_of_the_file_system_and_the_current_folder_are_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (Path("/"), Path()):
        with pytest.raises(UserError, match="cannot be replaced by another folder; choose"):
            atomic.require_writable(path, is_folder=True, is_replaced=True)
    atomic.require_writable(Path(), is_folder=True)
    atomic.require_writable(Path("/"), is_folder=True)


def test_a_temporary_folder_that_a_kill_left_is_swept_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = "import os\nwith atomic.temporary_folder() as folder: os.kill(os.getpid(), 9)"
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    subprocess.run(
        [sys.executable, "-c", f"from foreword.disk import atomic\n{code}"],
        env=environment,
        check=False,
    )
    (left,) = tmp_path.iterdir()
    with atomic.temporary_folder() as young:
        assert left.exists() and young.is_dir()
    os.utime(left, (1, 1))
    (tmp_path / "foreword-of-another").mkdir()  # not one of these
    with atomic.temporary_folder() as used:
        assert not left.exists()
        os.utime(used.parent, (1, 1))
        with atomic.temporary_folder():
            assert used.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["foreword-of-another"]


def test_nothing_is_written_through_a_link_into_a_missing_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "unmounted" / "page.html")
    for write in (lambda path: atomic.write_text(path, "x"), lambda path: fill(path, "x")):
        with pytest.raises(UserError, match=r"link: is a link into .*unmounted, which"):
            write(tmp_path / "link")
    assert not (tmp_path / "unmounted").exists()
