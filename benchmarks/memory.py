"""The memory of a run as `foreword check` estimates it, beside what the run takes.

    python benchmarks/memory.py [RECIPE[:SETTING,...]...] [--data TEXT...] [--steps 6]
    python benchmarks/memory.py --readers 300    reading 300 MB of each format, and a tenth of it

Each run is a process of its own: a few steps, evaluations, samples and checkpoints, from prepared
token shards. What it took is the peak of its resident set, as the system counts it; of mapped
shards the part that was read counts. Without a TEXT, one is made up.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

RECIPES = (
    "bert_tiny",
    "lstm_tiny",
    "bert_mini",
    "gpt2_mini",
    "t5_mini",
    "lstm_mini",
    "electra_mini",
    "transformer_xl_mini",
    "elmo_mini",
    "bert_base:train.batch=8,train.micro_batch=4",
    "gpt2_small:train.batch=2,train.micro_batch=2",
    "t5_base:train.batch=2,train.micro_batch=2",
)
FORMATS = (".txt", ".jsonl", ".parquet", ".warc")
READ = """
import sys
from pathlib import Path
from foreword.data.read_documents import ReadCounts, ReadSettings, read_documents
counts = ReadCounts()
for document in read_documents([Path(sys.argv[1])], ReadSettings(documents="line"), counts):
    pass
print(counts.bytes)
"""
WORDS = 40_000  # different words of a made-up text: enough for a vocabulary of 30,000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", default=list(RECIPES))
    parser.add_argument("--data", nargs="*", default=[])
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--readers", type=float, metavar="MB", help="read files of this size")
    arguments = parser.parse_args()
    if arguments.readers:
        readers(arguments.readers)
        return
    print(f"{'':44}{'estimated':>12}{'measured':>12}{'ratio':>8}")
    with tempfile.TemporaryDirectory() as folder:
        texts = arguments.data or [str(_made_up(Path(folder) / "text.txt"))]
        for recipe in arguments.recipes:
            estimated, measured = compare(recipe, texts, arguments.steps, Path(folder))
            ratio = estimated / measured
            print(
                f"{recipe:44}{estimated / 1e6:>9,.0f} MB{measured / 1e6:>9,.0f} MB{ratio:>8.2f}",
                flush=True,
            )


def readers(megabytes: float) -> None:
    """Measure reading each format, plain and compressed, in a process of its own, and print it."""
    print(f"{'peak resident memory, MB':26}{megabytes / 10:>8g} MB{megabytes:>8g} MB of text")
    with tempfile.TemporaryDirectory() as folder:
        for form in FORMATS:
            for packed in ("", ".gz", ".zst"):
                peaks = []
                for size in (megabytes / 10, megabytes):
                    path = Path(folder) / f"text{form}{packed}"
                    _write(path, int(size * 1e6))
                    read, peak = _run([sys.executable, "-c", READ, str(path)])
                    if int(read) < 0.97e6 * size:
                        raise SystemExit(f"{path.name}: {int(read):,} bytes of text were read")
                    peaks.append(peak / 1e6)
                    path.unlink()
                print(f"{form + packed:26}" + "".join(f"{p:>11,.0f}" for p in peaks), flush=True)


def _write(path: Path, size: int) -> None:
    """Write a file of some bytes of text, in documents of a thousand bytes."""
    rng = random.Random(1)
    letters = "aeioubcdfghklmnprst     "
    some = [" ".join("".join(rng.choices(letters, k=1000)).split()) for _ in range(500)]

    def documents() -> Iterator[str]:
        written = 0
        while written < size:
            for text in some:
                yield text
                written += len(text)

    packing = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix)
    form = path.with_suffix("").suffix if packing else path.suffix
    with path.open("wb") as raw:
        if form == ".warc" and packing == "gzip":  # a member for each record
            raw.writelines(gzip.compress(_page(text), 1) for text in documents())
            return
        out: Any = pa.CompressedOutputStream(raw, packing) if packing else raw
        if form == ".parquet":
            with parquet.ParquetWriter(out, pa.schema({"text": pa.string()})) as writer:
                for _ in range(0, size, sum(map(len, some))):
                    writer.write_table(pa.table({"text": some}))
        else:
            line = {".txt": "{}", ".jsonl": '{{"text": "{}"}}'}.get(form)
            for text in documents():
                out.write(f"{line.format(text)}\n".encode() if line else _page(text))
        if packing:
            out.close()


def _page(text: str) -> bytes:
    """Return a text as a record of a web archive."""
    block = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>{text}</p>".encode()
    head = "WARC/1.0\r\nWARC-Type: response\r\nContent-Type: application/http\r\n"
    return f"{head}Content-Length: {len(block)}\r\n\r\n".encode() + block + b"\r\n\r\n"


def compare(recipe: str, texts: Sequence[str], steps: int, folder: Path) -> tuple[int, int]:
    """Return the bytes that `check` estimates for a recipe, and those that `pretrain` takes."""
    name, _, settings = recipe.partition(":")
    options = [name, "--steps", str(steps), *_set(settings.split(",") if settings else [])]
    options += _set(["train.evaluations=2", "train.checkpoints=2"])
    run = folder / "run"
    _foreword(["pretrain", *options, "--data", *texts, "--out", str(run)])  # makes the shards
    data = ["--data", str(run / "shards")]
    estimate, _ = _foreword(["check", *options, *data, "--rows", "0", "--json"])
    _, measured = _foreword(["pretrain", *options, *data, "--out", str(folder / "again")])
    for finished in (run, folder / "again"):
        shutil.rmtree(finished)
    return int(json.loads(estimate)["memory_bytes"]["total"]), measured


def _set(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def _foreword(words: Sequence[str]) -> tuple[str, int]:
    return _run([sys.executable, "-m", "foreword", *words])


def _run(command: list[str]) -> tuple[str, int]:
    """Return the output of a command, and its peak memory in bytes."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        files = [(os.POSIX_SPAWN_DUP2, out.fileno(), 1), (os.POSIX_SPAWN_DUP2, errors.fileno(), 2)]
        child = os.posix_spawn(command[0], command, os.environ, file_actions=files)
        _, status, usage = os.wait4(child, 0)
        out.seek(0)
        errors.seek(0)
        if os.waitstatus_to_exitcode(status):
            raise SystemExit(f"{' '.join(command)}\n{errors.read().decode()}")
        return out.read().decode(), usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _made_up(path: Path) -> Path:
    rng = random.Random(1)
    letters = "aeioubcdfghklmnprst"
    words = ["".join(rng.choices(letters, k=rng.randint(3, 9))) for _ in range(WORDS)]
    with path.open("w", encoding="utf-8") as out:
        for _ in range(60_000):
            sentence = [words[int(WORDS * rng.random() ** 2)] for _ in range(rng.randint(5, 20))]
            out.write(" ".join(sentence).capitalize() + ".\n")
    return path


if __name__ == "__main__":
    main()
