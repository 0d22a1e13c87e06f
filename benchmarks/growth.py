"""Peak memory of each step from text to training, for corpora of several sizes.

    python benchmarks/growth.py TEXT... [--gb 0.15 0.6 2.4] [--steps filters prepare ...] --work DIR

Corpora are made of the texts: the first copy as it is, in later ones three words in ten of each
document are others of the same document, so that it is new to every step; one document in twenty is
an exact copy and one a copy with another word. Each step is a process of its own, with one worker.
Printed is the largest resident set of any of its processes, as the system counts it, with mapped
shards as far as they were read, and its processor time. Corpora and results stay in DIR, and what
is there is used again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import numpy as np

from foreword.data.read_documents import read_documents

FILE = 8_000_000  # bytes of a file of a corpus: one task of cleaning
EVALUATION = 500  # first documents of the texts, as a file to decontaminate from; in no corpus
CLEANING = {
    "language": '"language"',
    "filters": '"gopher_repetition", {kind = "gopher_quality", min_alphabetic_words = 0.65}',
    "c4 and fineweb": '{kind = "c4", ends_in_punctuation = false}, "fineweb"',
    "exact duplicates": '"exact_duplicates"',
    "near duplicates": '"near_duplicates"',
    "decontaminate": '{kind = "decontaminate", files = ["EVALUATION"]}',
}
TRAINING = ["--steps", "4", "--set", "train.threads=1", "--set", "train.batch=8"]
RECIPE = "gpt2_tiny"
STEPS = (*CLEANING, "tokenizer", "prepare", "train", "train a mixture")


def main() -> None:
    """Measure and print a row for each step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--gb", type=float, nargs="+", default=[0.15, 0.6, 2.4])
    parser.add_argument("--steps", nargs="+", default=list(STEPS), choices=STEPS)
    parser.add_argument("--work", type=Path, required=True)
    arguments = parser.parse_args()
    print("| step | " + " | ".join(f"{size:g} GB" for size in arguments.gb) + " |")
    print("|---" * (len(arguments.gb) + 1) + "|", flush=True)
    corpora = [_corpus(arguments.texts, size, arguments.work) for size in arguments.gb]
    for step in arguments.steps:
        print(f"| {step} |", end="", flush=True)
        for corpus in corpora:
            peak, seconds = _step(step, corpus)
            print(f" {peak / 1e6:,.0f} MB, {seconds:,.0f} s |", end="", flush=True)
        print(flush=True)


def _step(step: str, corpus: Path) -> tuple[int, float]:
    """Return the peak memory in bytes of a step, and its processor time in seconds."""
    work = corpus.parent
    done = work / f"{step}.json"
    if not done.is_file():
        out = work / step.replace(" ", "-")
        shutil.rmtree(out, ignore_errors=True)
        texts = [str(corpus)]
        if step in CLEANING:
            steps = CLEANING[step].replace("EVALUATION", str(work / "evaluation.jsonl"))
            recipe = work / "clean.toml"
            recipe.write_text(f"[clean]\nsteps = [{steps}]\n", "utf-8")
            words = ["clean", *texts, "--out", str(out), "--recipe", str(recipe), "--workers", "1"]
        elif step == "tokenizer":
            words = ["tokenizer", "train", *texts, "--out", str(out), "--kind", "bpe"]
            words += ["--vocab", "8192"]
        elif step == "prepare":
            words = ["prepare", *texts, "--out", str(out), "--workers", "1"]
            words += ["--tokenizer", str(work / "tokenizer")]
        elif step == "train":
            data = ["--data", str(work / "prepare")]
            words = ["pretrain", RECIPE, *data, "--out", str(out), *TRAINING]
        else:
            recipe = work / "mixture.toml"
            recipe.write_text(_mixture(work), "utf-8")
            words = ["pretrain", str(recipe), "--out", str(out), *TRAINING]
        result = run([*words, "--quiet"])
        done.write_text(json.dumps(result), "utf-8")
        if step not in ("tokenizer", "prepare"):
            shutil.rmtree(out)
    peak, seconds = json.loads(done.read_text("utf-8"))
    return peak, seconds


def _mixture(work: Path) -> str:
    """Return a recipe whose sources are the shards, and the same under another name."""
    other = work / "prepare-again"
    if not other.exists():
        other.mkdir()
        for file in (work / "prepare").iterdir():
            if file.is_dir():
                shutil.copytree(file, other / file.name)
            else:
                (other / file.name).hardlink_to(file)
    sources = "".join(
        f'[[data.sources]]\nname = "{name}"\npath = "{work / name}"\nweight = {weight}\n'
        for name, weight in (("prepare", 0.75), ("prepare-again", 0.25))
    )
    return f'extends = "{RECIPE}"\n{sources}'


def run(words: Sequence[str]) -> tuple[int, float]:
    """Return the peak memory in bytes of a command of Foreword, and its processor time."""
    with tempfile.TemporaryFile() as output:
        files = [(os.POSIX_SPAWN_DUP2, output.fileno(), number) for number in (1, 2)]
        command = [sys.executable, "-m", "foreword", *words]
        child = os.posix_spawn(sys.executable, command, os.environ, file_actions=files)
        _, status, usage = os.wait4(child, 0)
        if os.waitstatus_to_exitcode(status):
            output.seek(0)
            raise SystemExit(f"{' '.join(command)}\n{output.read().decode()}")
    unit = 1 if sys.platform == "darwin" else 1024
    return usage.ru_maxrss * unit, usage.ru_utime + usage.ru_stime


def _corpus(texts: Sequence[str], size: float, work: Path) -> Path:
    """Return the folder of a corpus of `size` GB, written if it is not there."""
    folder = work / f"{size:g}" / "corpus"
    if folder.is_dir():
        return folder
    part = folder.with_name("part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    lines = _lines(texts)
    with (folder.parent / "evaluation.jsonl").open("wb") as file:
        for _ in range(EVALUATION):
            file.write(next(lines))
    written = 0
    for number in count():
        with (part / f"{number:05}.jsonl").open("wb") as file:
            while file.tell() < FILE and written + file.tell() < size * 1e9:
                file.write(next(lines))
            written += file.tell()
        if written >= size * 1e9:
            break
    part.replace(folder)
    return folder


def _lines(texts: Sequence[str]) -> Iterator[bytes]:
    """Yield documents as JSON lines without end, each copy of the texts another."""
    rng = np.random.default_rng(1)
    for copy in count():
        for number, document in enumerate(read_documents(texts)):
            if copy and number < EVALUATION:
                continue
            text = document.text
            if copy and (kind := (number + copy) % 20):
                words = np.array(text.split(" "), object)
                index = np.arange(len(words))
                is_other = rng.random(len(words)) < 0.3
                if kind == 1:
                    is_other[:] = False
                    is_other[len(words) // 2] = True
                index[is_other] = rng.integers(len(words), size=int(is_other.sum()))
                text = " ".join(words[index])
            yield json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n"


if __name__ == "__main__":
    main()
