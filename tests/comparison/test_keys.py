"""Which saved results a comparison uses again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from foreword.comparison.grid import GridTask
from foreword.comparison.keys import TuningKey
from foreword.disk import store, stored
from foreword.tuning.tasks.classify import Classify
from foreword.tuning.tuned_folder import VERSION


def test_a_fine_tuning_that_cut_long_texts_is_done_again(tmp_path: Path) -> None:
    key = TuningKey(GridTask("task", "train.tsv", "dev.tsv"), ("checksum",), version=VERSION)
    file = store.publish(tmp_path, "task", key, {"rows": []})
    older = stored.read(file)
    del older["key"]["task"]["task"]["windows"]  # as before texts were read in windows
    stored.write(file, older)
    assert store.find(tmp_path, key) is None
    cut = replace(key, task=replace(key.task, task=Classify(windows="cut")))
    assert store.find(tmp_path, cut) == file


def test_a_fine_tuning_of_an_older_version_is_done_again(tmp_path: Path) -> None:
    key = TuningKey(GridTask("task", "train.tsv", "dev.tsv"), ("checksum",), version=VERSION)
    file = store.publish(tmp_path, "task", key, {"rows": []})
    assert store.find(tmp_path, key) == file
    older = stored.read(file)
    del older["key"]["version"]  # as it was written before there were versions
    stored.write(file, older)
    assert store.find(tmp_path, key) is None
    assert store.find(tmp_path, replace(key, version=1)) == file


def test_a_fine_tuning_after_another_task_is_not_that_of_another_start(tmp_path: Path) -> None:
    key = TuningKey(GridTask("task", "train.tsv", "dev.tsv"), ("checksum",), version=VERSION)
    after = replace(key, first=replace(key, files=("other",)))
    file = store.publish(tmp_path, "task", after, {"rows": []})
    assert store.find(tmp_path, after) == file
    assert store.find(tmp_path, key) is None
    assert store.find(tmp_path, replace(after, first=key)) is None
