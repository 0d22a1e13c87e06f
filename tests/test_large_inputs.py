"""Large inputs: the memory that they take, and how often they are read."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foreword.cli.main import run
from tests import forking
from tests.train import runs
from tests.tuning.runs import make_run

MEGABYTE = 10**6


def peak(output: Path, *words: str) -> int:
    """Return the peak of the resident set of a command in a process of its own, in bytes."""
    command = forking.start_into(words, output)
    assert command.wait() == 0, output.read_text()
    return command.peak


def write_document(path: Path, size: int, end: str = "") -> Path:
    """Write one document of about `size` bytes, without an empty line."""
    draw = random.Random(1)
    words = [
        "".join(draw.choices("aeioubcdfghklmnprst", k=draw.randint(2, 9))) for _ in range(5000)
    ]
    some = [
        " ".join(draw.choices(words, k=draw.randint(5, 20))).capitalize() + ". "
        for _ in range(2000)
    ]
    text = "".join(draw.choices(some, k=size // 75))
    path.write_text(text + end, encoding="utf-8")
    return path


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_long_document_takes_memory_in_proportion_to_its_size(tmp_path: Path) -> None:
    """Python takes 4 bytes for each character of a text with one emoji."""
    sizes = {"small": MEGABYTE, "plain": 5 * MEGABYTE, "wide": 5 * MEGABYTE}
    peaks = {}
    for name, size in sizes.items():
        text = write_document(tmp_path / f"{name}.txt", size, "😀" if name == "wide" else "")
        words = ["--kind", "bpe", "--vocab", "500", "--out", str(tmp_path / name)]
        peaks[name] = peak(tmp_path / "output", "prepare", str(text), *words, "--workers", "1")
    more = sizes["plain"] - sizes["small"]
    assert peaks["plain"] - peaks["small"] < 9 * more
    assert peaks["wide"] - peaks["small"] < 12 * more


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("strategy", "most"), [("full", 1_500), ("best", 10_000)])
def test_fine_tuning_rows_take_little_more_memory_than_their_tokens(
    strategy: str, most: int, tmp_path: Path
) -> None:
    """Counts and features of `best` come to 7 kB a row beside the network's."""
    folder = make_run(tmp_path / "run")
    draw = random.Random(1)
    peaks = []
    for rows in (1_000, 21_000):
        lines = [f"{' '.join(draw.choices(runs.WORDS, k=5))}\t{n % 2}" for n in range(rows)]
        for file, some in (("train", lines), ("dev", lines[:500])):
            path = tmp_path / f"{file}{rows}.tsv"
            path.write_text("\n".join(["text\tlabel", *some, ""]), encoding="utf-8")
        given = ["--train", f"{tmp_path}/train{rows}.tsv", "--dev", f"{tmp_path}/dev{rows}.tsv"]
        quick = ["--epochs", "1", "--seeds", "1", "--batch", "1000", "--device", "cpu"]
        quick += ["--strategy", strategy]
        words = [*given, *quick, "--out", f"{tmp_path}/out{rows}"]
        peaks.append(peak(tmp_path / "output", "tune", str(folder), *words))
    assert (peaks[1] - peaks[0]) / 20_000 < most


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each file was opened to be read, by name."""
    counts: Counter[str] = Counter()
    original = Path.open

    def opening(path: Path, mode: str = "r", *given: Any, **more: Any) -> Any:
        counts[path.name] += "r" in mode
        return original(path, mode, *given, **more)

    monkeypatch.setattr(Path, "open", opening)
    yield counts


@pytest.mark.full
def test_text_is_read_once_per_pass(tmp_path: Path, opened: Counter[str]) -> None:
    """Two sentences are sought; the tokenizer learns; a fingerprint is taken; shards are made."""
    text = str(write_document(tmp_path / "a.txt", 10_000))
    words = ["--kind", "wordpiece", "--vocab", "500"]
    assert run(["prepare", text, "--out", str(tmp_path / "shards"), *words]) == 0
    assert opened.pop("a.txt") == 4
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(runs.recipe("decoder", steps=1, device="cpu").dumps())
    tokenizer = str(tmp_path / "shards" / "tokenizer")
    words = ["--data", text, "--tokenizer", tokenizer, "--out", str(tmp_path / "run")]
    assert run(["pretrain", str(recipe), *words]) == 0
    assert opened.pop("a.txt") == 2
    assert run(["evaluate", str(tmp_path / "run"), "--data", text]) == 0
    assert opened.pop("a.txt") == 2
    assert run(["score", str(tmp_path / "run"), "--file", text]) == 0
    assert opened.pop("a.txt") == 1


def test_a_count_based_model_is_evaluated_on_text_tokenized_once(
    tmp_path: Path, opened: Counter[str]
) -> None:
    text = str(write_document(tmp_path / "a.txt", 20_000))
    out = str(tmp_path / "run")
    assert run(["pretrain", "ngram_tiny", "--data", text, "--out", out]) == 0
    opened.clear()
    assert run(["evaluate", out, "--data", text]) == 0
    assert opened["a.txt"] == 2  # for its fingerprint, and to be tokenized
    assert run(["evaluate", out]) == 0
    assert opened["heldout.bin"] == 2, "a checksum, and to be mapped"


def test_a_table_is_read_once(tmp_path: Path, opened: Counter[str]) -> None:
    for file in ("train.tsv", "dev.tsv"):
        rows = [f"the cat {word} here\t{n % 2}" for n, word in enumerate(runs.WORDS)]
        (tmp_path / file).write_text("\n".join(["text\tlabel", *rows, ""]), encoding="utf-8")
    given = ["--train", str(tmp_path / "train.tsv"), "--dev", str(tmp_path / "dev.tsv")]
    run_folder = str(make_run(tmp_path / "run"))
    assert (
        run(["tune", "--strategy=full", run_folder, *given, "--epochs", "1", "--seeds", "1"]) == 0
    )
    assert opened["train.tsv"] == opened["dev.tsv"] == 1
