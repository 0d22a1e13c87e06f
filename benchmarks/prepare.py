"""How fast `foreword prepare` is next to the tokenizer it calls, and how much memory it takes.

    python benchmarks/prepare.py [TEXT...] [--rounds 1] [--sample-mb 20]

The same text is encoded by `tokenizers`' own `encode_batch`, from memory to memory, and by
`prepare`, from files to shards on disk, in turns; printed is the ratio of their rates. Without a
TEXT, one is made up. Memory is the sum of all processes' peaks, shared pages counted in each. Other
work on the machine disturbs wall time more than CPU time.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tokenizers import Tokenizer as Engine

from foreword.data.holdout import SplitFiles
from foreword.data.read_documents import read_documents
from foreword.data.write_shards import PrepareSettings, prepare
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers.wordpiece import WordPiece

BATCH = 1000  # documents that the tokenizer encodes at once


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--sample-mb", type=int, default=20, help="text to train a tokenizer on")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        texts = arguments.texts or [str(_made_up(Path(folder) / "text.txt"))]
        tokenizer = WordPiece(vocab=30_522 if arguments.texts else 2_000).train(
            _first(texts, arguments.sample_mb * 1_000_000)
        )
        for number in range(arguments.rounds):
            _round(texts, tokenizer, Path(folder) / f"shards-{number}")


def _round(texts: list[str], tokenizer: Tokenizer, out: Path) -> None:
    # Ours.
    tokenizer.save(out.with_suffix(".tokenizer"))
    settings = PrepareSettings(workers=os.cpu_count() or 1)
    ours = _seconds(lambda: prepare(SplitFiles.find(texts), tokenizer, out, settings))
    peak = _peak(settings.workers)
    # The tokenizer alone, on the same documents.
    documents = [document.text for document in read_documents(texts)]
    size = sum(len(text.encode()) for text in documents) / 1e6
    engine = Engine.from_file(str(out.with_suffix(".tokenizer") / "tokenizer.json"))

    def encode() -> None:
        for at in range(0, len(documents), BATCH):
            engine.encode_batch(documents[at : at + BATCH], add_special_tokens=False)

    theirs = _seconds(encode)
    print(f"text               {size:8.1f} MB, {len(documents):,} documents")
    for name, (clock, cpu) in (("encode_batch", theirs), ("prepare", ours)):
        print(f"{name:<16} {size / clock:10.2f} MB/s {clock:8.1f} s, processors {cpu:.1f} s")
    print(f"ratio of rates     {theirs[0] / ours[0]:8.2f}")
    print(f"  by processor     {theirs[1] / ours[1]:8.2f}")
    print(f"peak memory        {peak:8.2f} GB, all processes")


def _seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of work in wall time and in CPU time, child processes included."""
    clock, before = time.perf_counter(), os.times()
    work()
    after = os.times()
    return time.perf_counter() - clock, sum(after[:4]) - sum(before[:4])


def _peak(workers: int) -> float:
    """Return an upper bound of resident GB: the peak of this process and the largest worker's."""
    parent, child = (
        resource.getrusage(who).ru_maxrss * 1024
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return (parent + workers * child) / 1e9


def _first(texts: list[str], limit: int) -> Iterator[str]:
    """Yield the first documents, up to `limit` characters."""
    size = 0
    for document in read_documents(texts):
        yield document.text
        size += len(document.text)
        if size > limit:
            return


def _made_up(path: Path) -> Path:
    """Write 20 MB of made-up words of made-up syllables, in sentences and paragraphs."""
    rng = random.Random(1)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(20_000)]
    weights = [1 / (n + 1) for n in range(len(words))]
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < 20_000_000:
            sampled = iter(rng.choices(words, weights, k=10_000))
            for _ in range(800):
                file.write(" ".join(word for word, _ in zip(sampled, range(12), strict=False)))
                file.write(".\n\n" if rng.random() < 0.1 else ". ")
    return path


if __name__ == "__main__":
    main()
