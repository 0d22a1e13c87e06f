"""How long building a 5-gram takes next to KenLM's `lmplz`, and how fast it scores tokens.

    python benchmarks/ngrams.py TRAIN TEST [--order 5] [--rounds 3] [--lmplz-seconds 1.3]

Each line of TRAIN is a sentence. Building goes from words to a model on disk: encode, count,
smooth, write, as `lmplz` does to an ARPA file. If `lmplz` is on the PATH, it runs in turns with
ours; otherwise its time is --lmplz-seconds. Other work on the machine disturbs wall time more than
CPU time. Aims: at most 4 times `lmplz`; 300,000 tokens/s.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from foreword.ngrams.counting import count
from foreword.ngrams.scratch import Scratch
from foreword.ngrams.table import NgramTable
from foreword.settings.kinds import load
from foreword.text.tokenizer import Tokenizer
from foreword.text.tokenizers.word import Word
from foreword.types import Array


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--lmplz-seconds", type=float, default=1.3, help="if lmplz is not installed"
    )
    arguments = parser.parse_args()
    # Lines end where the product's reader and KenLM see an end, in a line feed.
    lines = [
        file.read_text("utf-8").removesuffix("\n").split("\n")
        for file in (arguments.train, arguments.test)
    ]
    tokenizer = Word("whitespace", vocab=1_000_000, min_count=1).train(lines[0])
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.rounds):
            round_folder = Path(folder) / str(number)
            round_folder.mkdir()
            _round(arguments, tokenizer, lines, round_folder)


def _round(
    arguments: argparse.Namespace, tokenizer: Tokenizer, lines: list[list[str]], folder: Path
) -> None:
    vocab = tokenizer.vocab
    start = vocab.id("<s>")
    is_word = ~vocab.is_special
    is_word[[vocab.id("[UNK]"), vocab.id("</s>")]] = True
    smoothing = load("ngrams/smoothing", "modified_kneser_ney")()
    scratch = Scratch(folder)
    results: dict[str, Array | list[Array] | NgramTable] = {}

    def build() -> None:
        began = time.perf_counter()
        stream = _stream(tokenizer, lines[0])
        encoded = time.perf_counter()
        levels = count(stream, arguments.order, vocab.size, start, scratch)
        counted = time.perf_counter()
        table = NgramTable.of(levels, start, smoothing, is_word, scratch)
        table.save(folder)
        ended = time.perf_counter()
        print(
            f"encoded {encoded - began:.2f} s, counted {counted - encoded:.2f} s, "
            f"smoothed and written {ended - counted:.2f} s"
        )
        results["table"] = NgramTable.load(folder)

    # Build, and compare with lmplz.
    wall, cpu = _seconds(build)
    theirs, source = _lmplz(arguments, folder)
    print(
        f"order {arguments.order} built in {wall:.2f} s ({cpu:.2f} s of processors); lmplz "
        f"{theirs:.2f} s ({source}): ratio {wall / theirs:.2f} ({cpu / theirs:.2f})"
    )
    # Score the test text.
    table, stream = results["table"], _stream(tokenizer, lines[1])
    assert isinstance(table, NgramTable)
    results["scores"] = table.log_probs_of(stream)  # reads the mapped pages
    wall, cpu = _seconds(lambda: results.update(scores=table.log_probs_of(stream)))
    tokens = int((stream != start).sum())
    scores = np.asarray(results["scores"])
    print(
        f"scored {tokens / wall:,.0f} tokens/s ({tokens / cpu:,.0f} by the processors' seconds); "
        f"perplexity {np.exp(-scores.sum() / tokens):.2f}"
    )


def _stream(tokenizer: Tokenizer, lines: list[str]) -> Array:
    """Return all lines as tokens, each between <s> and </s>."""
    start, end = tokenizer.vocab.id("<s>"), tokenizer.vocab.id("</s>")
    encoded = tokenizer.encode_batch(lines)
    return np.fromiter((i for line in encoded for i in (start, *line, end)), np.int32)


def _lmplz(arguments: argparse.Namespace, folder: Path) -> tuple[float, str]:
    """Return the seconds that KenLM takes, and how they are known."""
    program = shutil.which("lmplz")
    if program is None:
        return arguments.lmplz_seconds, "as given"
    # `<unk>` is a word of the corpus, which lmplz keeps for itself.
    text = arguments.train.read_text("utf-8").replace("<unk>", "<rare>")
    (folder / "text.txt").write_text(text, encoding="utf-8")
    command = [program, "-o", str(arguments.order), "--text", str(folder / "text.txt")]
    command += ["--arpa", str(folder / "their.arpa"), "-T", str(folder), "-S", "1G"]
    wall, _ = _seconds(lambda: subprocess.run(command, check=True, capture_output=True))
    return wall, "in turns"


def _seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of work in wall time and in CPU time of this process."""
    began, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - cpu


if __name__ == "__main__":
    main()
