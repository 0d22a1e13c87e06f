"""What must not change when code only moves: weights, scores and answers of a run of every family.

    python benchmarks/freeze.py --out before.json [--families bert,t5]    in the one checkout
    python benchmarks/freeze.py --out after.json --against before.json    in the other

Each `*_tiny` recipe is trained for a few steps on made-up text, scored, asked and fine-tuned by the
command line, on one thread. The file has the digest of its weights, and the exit status and output
of every command; the second call prints what differs, and exits with status 1 if anything does.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

TRANSLATORS = {"seq2seq", "translator"}
DENOISERS = {"t5", "ul2"}
COUNTED = {"ngram", "word2vec"}  # not trained in steps
TUNING = ("--train", "train.tsv", "--dev", "dev.tsv", "--seeds", "2", "--epochs", "1")
NOT_FROZEN = re.compile(r"seconds|per_second|hours|time|date|memory|commit|machine|version|bytes")
REFUSED = (
    "pretrain bert_tny --data text.txt --out x",
    "pretrain bert_tiny --data none.txt --out x",
    "pretrain bert_tiny --data text.txt --out x --steps 5 --tokens 1e5",
    "pretrain bert_tiny --data text.txt --out x --set model.layer=2",
    "pretrain bert_tiny --data text.txt --out x --steps -1",
    "resume none",
    "check bert_tiny --data none.txt",
    "tune none --train train.tsv --dev dev.tsv",
    "tune bert --train train.tsv --dev none.tsv",
    "tune bert --train train.tsv --dev dev.tsv --task clasify",
    "tune bert --train train.tsv --dev dev.tsv --strategy lor",
    "tune bert --train train.tsv --dev dev.tsv --label lable",
    "predict bert train.tsv",
    "evaluate bert --data none.txt",
    "generate bert hello --temperature -1",
    "fill gpt2 hello",
    "score none hello",
    "compare none.toml --data text.txt --out x",
    "show maskd",
    "export bert --format hff --out x",
    "import none --out x",
    "prepare none.txt --out x",
    "clean none.txt --out x",
    "report none",
    "frobnicate",
)


def main() -> None:
    """Freeze, and compare if there is something to compare with."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--families", default="")
    asked = parser.parse_args()
    from foreword.settings.config import RECIPES

    tiny = [name.removesuffix("_tiny") for name in RECIPES.names() if name.endswith("_tiny")]
    families = asked.families.split(",") if asked.families else tiny
    out = asked.out.absolute()
    against = json.loads(asked.against.read_text()) if asked.against else None
    sys.argv[1:] = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("frozen").mkdir()
        os.chdir("frozen")  # whose name is in those of results
        write_texts(random.Random(1))
        frozen = {family: dict(answers(family)) for family in families}
        if not asked.families:
            frozen["refused"] = {line: call(line.split()) for line in REFUSED}
    out.write_text(json.dumps(frozen, indent=1, ensure_ascii=False) + "\n")
    if against is not None:
        wrong = [
            f"{family}: {what}\n  before: {before}\n  after:  {frozen[family].get(what)}"
            for family in frozen
            for what, before in against[family].items()
            if frozen[family].get(what) != before
        ]
        sys.stdout.write("\n".join([*wrong, f"{len(wrong)} differ"]) + "\n")
        sys.exit(bool(wrong))


def write_texts(draws: random.Random) -> None:
    """Write text, pairs of sentences and labelled examples of made-up words."""
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    words = ["".join(draws.choices(syllables, k=draws.randint(1, 4))) for _ in range(300)]
    weights = [1 / (n + 5) for n in range(len(words))]
    lines = [
        " ".join(draws.choices(words, weights, k=draws.randint(4, 12))).capitalize() + "."
        for _ in range(600)
    ]
    paragraphs = [" ".join(lines[n : n + 8]) for n in range(0, len(lines), 8)]
    Path("text.txt").write_text("\n\n".join(paragraphs))
    Path("pairs").mkdir()
    for language, texts in (("en", lines), ("de", [line[::-1] for line in lines])):
        Path(f"pairs/train.{language}").write_text("\n".join(texts) + "\n")
    Path("line.txt").write_text(lines[0] + "\n")
    for name in ("train", "dev"):
        rows = [f"{draws.choice(lines)}\t{'ab'[n % 2]}" for n in range(32)]
        Path(f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")


def answers(family: str) -> Iterator[tuple[str, Any]]:
    """Train a family, and yield the name and the outcome of each command asked of it."""
    data = "pairs/train.en" if family in TRANSLATORS else "text.txt"
    sets = ["prepare.heldout=0.1", "tokenizer.vocab=400"]
    words = f"pretrain {family}_tiny --data {data} --out {family}".split()
    if family not in TRANSLATORS:
        words += ["--documents", "paragraph"]
    if family not in COUNTED:
        sets += ["train.batch=4", "train.evaluations=2", "train.heldout_rows=4"]
        words += ["--steps", "6"]
    yield "pretrain", call([*words, *(w for s in sets for w in ("--set", s))], is_json=False)[:1]
    for file in sorted(Path(family).rglob("*.safetensors")):
        if "optimizer" not in file.name:
            yield str(file), hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    log = Path(family, "metrics.jsonl").read_text().splitlines()
    yield "losses", [r["loss"] for r in map(json.loads, log) if "loss" in r]
    line = Path("line.txt").read_text().strip()
    first, rest = line.split(maxsplit=1)
    blank = "<extra_id_0>" if family in DENOISERS else "[MASK]"
    source = ["--source", line] if family in TRANSLATORS | DENOISERS else []
    for words in (
        ["fill", family, f"{blank} {rest}"],
        ["generate", family, first, "--tokens", "8", "--temperature", "0"],
        ["generate", family, first, "--tokens", "8", "--seed", "3"],
        ["score", family, line, *source],
        ["translate", family, "--source", "line.txt", "--tokens", "4"],
        ["neighbours", family, first.lower(), "--top", "2"],
        ["evaluate", family],
        ["tune", family, *TUNING],
        ["predict", f"{family}/tuned/train", "dev.tsv", "--probabilities"],
    ):
        yield " ".join(words), call([*words, "--json"])


def call(words: list[str], *, is_json: bool = True) -> list[Any]:
    """Return the exit status of a command and its JSON, or its last line where it refuses."""
    from foreword.cli.main import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(words)
    if status or not is_json:
        return [status, err.getvalue().strip().splitlines()[-1:]]
    return [status, steady(json.loads(out.getvalue() or "null"))]


def steady(value: Any) -> Any:
    """Return a JSON value without what differs between two calls, and floats to six digits."""
    if isinstance(value, dict):
        return {k: steady(v) for k, v in value.items() if not NOT_FROZEN.search(k)}
    if isinstance(value, list):
        return [steady(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
