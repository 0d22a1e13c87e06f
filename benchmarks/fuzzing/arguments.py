"""Command lines of every verb, with words lost, doubled, exchanged or replaced."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from fuzzing import fixtures
from fuzzing.case import Command, Sandbox
from fuzzing.values import WILD_WORDS

SETTINGS = (
    *("model.layers=0", "train.batch=0", "objective.rate=2", "model=none", "a=b", "=", "train"),
    *("layer=0", "task.pooling=none", "tune.decay=7", "tokenizer.vocab=1", "optimizer.lr=nan"),
    "a" + ".a" * 5_000 + "=1",
)


def lines(sandbox: Sandbox, family: str = "") -> dict[str, Callable[[], list[str]]]:
    """A command line of each verb that does what it is asked, to a run of any family or of one."""

    def at(name: str) -> str:
        return str(sandbox.fixtures / name)

    def run(name: str = "") -> str:
        families = ("bert", "gpt2", "t5", "linformer", "ngram", "word2vec", "translator", "elmo")
        copied = sandbox.copy(name or family or sandbox.rng.choice(families))
        return str(copied.rename(copied.with_name("run")))

    def tuned(name: str = "fixture") -> str:
        return f"{run('bert')}/tuned/{name}"

    text, out = at("text.txt"), sandbox.out
    labelled = ["--train", at("train.tsv"), "--dev", at("dev.tsv"), "--seeds", "1", "--epochs", "1"]
    small = ["--set", "train.batch=2", "--steps", "2", "--heldout", "0.1"]
    shards = ["--data", at("shards"), "--out", out]
    return {
        "pretrain": lambda: ["pretrain", "bert_tiny", *shards, "--set", "train.batch=2"],
        "check": lambda: ["check", "gpt2_tiny", "--data", text, *small, "--json"],
        "prepare": lambda: ["prepare", text, "--vocab", "400", "--heldout", "0.1", "--out", out],
        "tokenizer train": lambda: ["tokenizer", "train", text, "--vocab", "400", "--out", out],
        "tokenizer show": lambda: [
            "tokenizer",
            "show",
            at("tokenizer"),
            "--text",
            "ba be",
            "--json",
        ],
        "tokenizer trace": lambda: ["tokenizer", "trace", "low:5", "lower:2", "--merges", "3"],
        "tune": lambda: ["tune", run(), *labelled, "--batch", "4"],
        "tune suite": lambda: fixtures.suite(sandbox.fixtures, Path(run("bert")), Path(out), "new"),
        "predict": lambda: ["predict", tuned(), at("dev.tsv"), "--out", f"{out}.jsonl"],
        "evaluate tuned": lambda: ["evaluate-tuned", tuned()],
        "drift": lambda: ["drift", tuned(), "--examples", "4"],
        "export tuned": lambda: ["export", tuned(), "--format", "hf", "--out", out],
        "clean": lambda: fixtures.clean(sandbox.fixtures, Path(out)),
        "fill": lambda: ["fill", run(), "ba [MASK] be", "--top", "2", "--json"],
        "generate": lambda: ["generate", run(), "ba", "--tokens", "4", "--temperature", "0.8"],
        "score": lambda: ["score", run(), "--file", at("other.txt"), "--documents", "line"],
        "evaluate": lambda: ["evaluate", run(), "--rows", "2", "--json"],
        "evaluate text": lambda: ["evaluate", run(), "--data", text, "--streams", "1"],
        "probe": lambda: ["probe", run(), "gradient_reach", "--out", out],
        "probe words": lambda: ["probe", run(), "word_in_context", "--out", out],
        "neighbours": lambda: ["neighbours", run(), "ba", "--top", "2", "--json"],
        "translate": lambda: ["translate", run("translator"), "--source", at("line.txt")],
        "report": lambda: ["report", run(), "--out", out],
        "resume": lambda: ["resume", run(), "--json"],
        "export": lambda: ["export", run(), "--format", "hf", "--out", out],
        "import": lambda: ["import", at("hf"), "--format", "hf", "--out", out],
        "import arpa": lambda: ["import", at("counts.arpa"), "--format", "arpa", "--out", out],
        "import vectors": lambda: [
            *("import", at("vectors.txt"), "--format", "word2vec", "--out", out)
        ],
        "show": lambda: [
            "show",
            sandbox.rng.choice(("kinds", "recipes", "families", "bert_tiny")),
        ],
        "compare": lambda: [
            *("compare", "objectives", "--data", text, "--steps", "2", "--out", out, "--dry-run")
        ],
        "compare grid": lambda: fixtures.compare(sandbox.fixtures, Path(out)),
    }


def arguments(sandbox: Sandbox) -> list[Command]:
    """A command line with one to three mistakes; sometimes in a new process."""
    rng, known = sandbox.rng, lines(sandbox)
    words = known[rng.choice(list(known))]()
    for _ in range(rng.choice((1, 1, 2, 3))):
        words = mutate(words, rng)
    is_process = rng.random() < 0.02
    return [Command([word.replace("\x00", "") for word in words], is_process=is_process)]


def mutate(words: list[str], rng: random.Random) -> list[str]:
    """The words with one mistake; the verb stays mostly."""
    if len(words) < 2:
        return [*words, rng.choice(WILD_WORDS)]
    words = list(words)
    at = rng.randrange(1, len(words)) if rng.random() < 0.97 else 0
    how = rng.randrange(8)
    if how == 0:
        del words[at]
    elif how == 1:
        words.insert(at, words[at])
    elif how == 2:
        other = rng.randrange(1, len(words))
        words[at], words[other] = words[other], words[at]
    elif how == 3:
        words[at : at + 1] = [f"--{rng.choice(('jsn', 'out', 'device', 'seed', 'x', 'help'))}"]
    elif how == 4:
        words += ["--set", rng.choice(SETTINGS)]
    elif how == 5:
        words += [
            rng.choice(("--device", "--json", "--precision", "--field", "--errors", "--tokens"))
        ]
        words += [rng.choice(WILD_WORDS)] if rng.random() < 0.7 else []
    else:  # a value most often, for that is where most mistakes are made
        values = [n for n in range(1, len(words)) if words[n - 1].startswith("--")] or [at]
        words[rng.choice(values)] = rng.choice(WILD_WORDS)
    return words


def interrupted(sandbox: Sandbox) -> list[Command]:
    """A run that gets Ctrl-C at some moment, and is resumed or started again."""
    data = ["--data", str(sandbox.fixtures / "text.txt"), "--documents", "paragraph"]
    small = ["--set", "train.batch=2", "--set", "tokenizer.vocab=400", "--steps", "300"]
    words = ["pretrain", sandbox.rng.choice(("gpt2_tiny", "bert_tiny")), *data, *small]
    words += ["--set", "prepare.heldout=0.1", "--out", sandbox.out]
    after = sandbox.rng.uniform(0.05, 9.0)
    return [
        Command(words, is_process=True, interrupt=after),
        Command(["resume", sandbox.out]),
        Command(["generate", sandbox.out, "ba", "--tokens", "2"]),
    ]
