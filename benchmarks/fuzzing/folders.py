"""Runs, shards, tokenizers and other people's files, damaged, given to verbs that read them."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

from fuzzing.case import Command, Sandbox
from fuzzing.files import damaged
from fuzzing.values import WILD

RUNS = (
    "bert",
    "gpt2",
    "t5",
    "elmo",
    "linformer",
    "transformer_xl",
    "ngram",
    "word2vec",
    "translator",
)


def folder(sandbox: Sandbox) -> list[Command]:
    """Damage a folder of Foreword or of others one to three times, and read it."""
    rng = sandbox.rng
    what = rng.choice((*RUNS, "shards", "tokenizer", "hf", "vectors.txt", "counts.arpa"))
    copied = sandbox.copy(what)
    target = copied.rename(copied.with_name("run" if what in RUNS else f"in-{what}"))
    for _ in range(rng.choice((1, 1, 2, 3))):
        damage(target, rng)
    return [Command(words) for words in _readers(sandbox, what, target)]


def damage(target: Path, rng: random.Random) -> None:
    """Damage a file, or one below a folder."""
    if not target.exists():
        return
    paths = [target] if target.is_file() else sorted(target.rglob("*"))
    files = [path for path in paths if path.is_file() and not path.is_symlink()]
    if not files:
        return
    path, how = rng.choice(files), rng.random()
    if how < 0.1:
        path.unlink()
    elif how < 0.15:
        path.unlink()
        path.mkdir()
    elif how < 0.2:
        path.write_bytes(b"")
    elif how < 0.25:
        path.unlink()
        path.symlink_to(rng.choice((path, path.parent, Path("/dev/null"), Path("nowhere"))))
    elif how < 0.28:
        path.unlink()
        os.mkfifo(path)  # which a reader would wait for
    elif how < 0.3 and target.is_dir():
        shutil.copyfile(rng.choice(files), path.with_name("more"))
        path.with_name("more").replace(path)
    elif how < 0.65 and path.suffix in (".json", ".jsonl"):
        _damage_json(path, rng)
    elif how < 0.7 and path.suffix in (".json", ".jsonl", ".toml", ".txt"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    else:
        path.write_bytes(damaged(path.read_bytes(), rng))


def _damage_json(path: Path, rng: random.Random) -> None:
    """Changes a value somewhere in a JSON file, or in a line of one."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.suffix == ".jsonl" else []
        at = rng.randrange(len(lines)) if lines else 0
        value: Any = json.loads(lines[at] if lines else path.read_text(encoding="utf-8"))
    except (ValueError, OSError):  # damaged already
        return
    root: Any = [value]
    holder, key = root, 0
    while isinstance(holder[key], dict | list) and holder[key] and rng.random() < 0.8:
        holder = holder[key]
        key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    if rng.random() < 0.25 and isinstance(holder, dict):
        del holder[key]
    else:
        holder[key] = rng.choice(WILD)
    written = json.dumps(root[0])
    if lines:
        lines[at] = written
        written = "\n".join(lines) + "\n"
    path.write_text(written, encoding="utf-8", errors="replace")


def _readers(sandbox: Sandbox, what: str, target: Path) -> list[list[str]]:
    """Two or three verbs that read it."""
    rng, path, out = sandbox.rng, str(target), sandbox.out
    made = ["--out", out]
    tiny = ["--set", "train.batch=2", "--steps", "1"]
    if what == "shards":
        return [["pretrain", "gpt2_tiny", "--data", path, *tiny, *made]]
    if what == "tokenizer":
        text = str(sandbox.fixtures / "text.txt")
        show = ["tokenizer", "show", path, "--text", "ba be", "--json"]
        return [show, ["prepare", text, "--tokenizer", path, "--heldout", "0.1", *made]]
    if what in ("hf", "vectors.txt", "counts.arpa"):
        form = {"hf": "hf", "vectors.txt": "word2vec", "counts.arpa": "arpa"}[what]
        return [["import", path, "--format", form, *made]]
    labelled = [str(sandbox.fixtures / f"{name}.tsv") for name in ("train", "dev")]
    tuning = ["--train", labelled[0], "--dev", labelled[1], "--seeds", "1", "--epochs", "1"]
    ways = [
        ["fill", path, "ba [MASK] be"],
        ["generate", path, "ba", "--tokens", "2"],
        ["score", path, "ba be", "--json"],
        ["evaluate", path, "--rows", "2", "--json"],
        ["report", path, "--json"],
        ["resume", path, "--json"],
        ["tune", path, *tuning, *made],
        ["export", path, "--format", rng.choice(("hf", "arpa", "word2vec")), *made],
        ["probe", path, rng.choice(("gradient_reach", "word_in_context")), *made],
        ["neighbours", path, "ba"],
        [
            "pretrain",
            "bert_tiny",
            "--from",
            path,
            "--data",
            str(sandbox.fixtures / "text.txt"),
            *tiny,
            *made,
        ],
    ]
    return rng.sample(ways, 3)
