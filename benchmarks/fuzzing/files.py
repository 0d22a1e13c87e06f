"""Texts to read and tables to fine-tune on, as they come: odd, broken, empty, huge."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from fuzzing.case import Command, Sandbox
from fuzzing.fixtures import sentences

ODD = (
    "",
    " ",
    "\t",
    "\ufeff",
    "\u2028",
    "\u0085",
    "\x0c",
    "\x1c",
    "é",
    "한국어",
    "\U0001f600",
    '"',
)

SLOW_TO_SCORE = 50_000  # bytes for a masked model


def text(sandbox: Sandbox) -> list[Command]:
    """A file of text, whole or broken, given to a verb that reads text."""
    draw = sandbox.draw
    suffix = draw.choice((".txt", ".md", ".jsonl", ".parquet", ".txt", ".jsonl", ""))
    packed = draw.choice(("", "", "", ".gz", ".zst"))
    content = (
        damaged(_content(suffix, draw), draw) if draw.random() < 0.25 else _content(suffix, draw)
    )
    if packed == ".gz":
        content = gzip.compress(content, mtime=0)
    elif packed == ".zst":
        content = pa.compress(content, codec="zstd", asbytes=True)
    if draw.random() < 0.1:
        content = damaged(content, draw)
    path = str(sandbox.write(f"in/some{suffix}{packed}", content))
    options = draw.choice(
        ([], [], *[["--errors", "replace"]] * 4, ["--field", "body"], ["--documents", "line"])
    )
    if draw.random() < 0.1:
        path = str(sandbox.folder / "in" / draw.choice(("*", "*.nothing", "", "**/*", "[")))
    return [Command([*_reader(sandbox, path), *options])]


def _reader(sandbox: Sandbox, path: str) -> list[str]:
    """A verb, and the file where it reads it."""
    words = ["--set", "train.batch=2", "--set", "tokenizer.vocab=400", "--steps", "1"]
    recipe = sandbox.draw.choice(("gpt2_tiny", "bert_tiny", "ngram_tiny", "word2vec_tiny"))
    if recipe in ("ngram_tiny", "word2vec_tiny"):
        words = []
    run = sandbox.fixtures / sandbox.draw.choice(("gpt2", "ngram", "bert"))
    if Path(path).is_file() and Path(path).stat().st_size > SLOW_TO_SCORE:
        run = sandbox.fixtures / "gpt2"  # a masked model reads a row for each token
    ways: tuple[Callable[[], list[str]], ...] = (
        lambda: ["pretrain", recipe, "--data", path, *words, "--out", sandbox.out],
        lambda: ["prepare", path, "--vocab", "400", "--out", sandbox.out],
        lambda: ["tokenizer", "train", path, "--vocab", "400", "--out", sandbox.out],
        lambda: ["score", str(run), "--file", path, "--json"],  # refused where no runs were made
        lambda: ["check", "gpt2_tiny", "--data", path, "--json"],
        lambda: [
            "pretrain",
            "translator_tiny",
            "--data",
            path,
            "--steps",
            "1",
            "--out",
            sandbox.out,
        ],
    )
    return sandbox.draw.choice(ways)()


def _content(suffix: str, draw: random.Random) -> bytes:
    """A file as its suffix says, with odd things in it."""
    lines = sentences(draw, draw.choice((0, 1, 30, 200, 400, 400, 400)))
    for _ in range(draw.randint(0, 4)):
        lines.insert(draw.randint(0, len(lines)), draw.choice(ODD) * draw.choice((1, 1, 50)))
    if suffix == ".jsonl":
        return "\n".join(_record(line, draw) for line in lines).encode()
    if suffix == ".parquet":
        sink = io.BytesIO()
        columns = draw.choice(
            (
                {"text": pa.array(lines, pa.string())},
                {"text": pa.array([None, *lines[1:]], pa.string())},
                {"text": pa.array(range(len(lines)), pa.int64())},
                {"body": pa.array(lines, pa.string())},
                {"text": pa.array([[line] for line in lines], pa.list_(pa.string()))},
                {"text": pa.array([line.encode() + b"\xff" for line in lines], pa.binary())},
            )
        )
        parquet.write_table(pa.table(columns), sink)
        return sink.getvalue()
    glue = draw.choice(("\n", "\n", "\n\n", "\n\n", "\r\n", "\r", " ", "\x00"))
    encoding = draw.choice((*["utf-8"] * 8, "utf-16", "utf-8-sig", "utf-32-le"))
    return glue.join(lines * draw.choice((1, 1, 1, 20))).encode(encoding)


def _record(line: str, draw: random.Random) -> str:
    how = draw.random()
    if how < 0.998:
        return json.dumps({"text": line}, ensure_ascii=draw.random() < 0.5)
    return draw.choice(
        (
            *('{"text": null}', '{"text": 3}', "[]", "3", '"text"', "{}", '{"text": ["a"]}', "{"),
            *(
                '{"text": "\\ud800"}',
                '{"text": "a\\u0000b"}',
                '{"text": NaN}',
                '{"a": {"text": "b"}}',
            ),
            *(
                "[" * 5_000,
                '{"text": "a", "text": "b"}',
                "",
                '{"text": 1e999}',
                f'{{"n": {"9" * 5000}}}',
            ),
        )
    )


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Bytes changed, lost, put in or cut off."""
    for _ in range(draw.choice((1, 1, 2, 8))):
        at = draw.randrange(len(content) + 1)
        how = draw.randrange(5)
        if how == 0:
            content = content[:at]
        elif how == 1:
            content = content[:at] + bytes([draw.randrange(256)]) + content[at + 1 :]
        elif how == 2:
            content = content[:at] + b"\x00" * draw.choice((1, 100)) + content[at:]
        elif how == 3:
            content = content[:at] + draw.randbytes(draw.choice((1, 40))) + content[at:]
        else:
            content = content[:at] + content[at + draw.choice((1, 10, 1_000)) :]
    return content


def table(sandbox: Sandbox) -> list[Command]:
    """Labelled text, with odd rows, columns and labels, to fine-tune on."""
    draw = sandbox.draw
    task = draw.choice(("classify", "classify", "regress", "text_to_text"))
    form = draw.choice((".tsv", ".csv", ".jsonl"))
    files = []
    for name in ("train", "dev"):
        content = _table(task, form, draw).encode("utf-8", "surrogatepass")
        if draw.random() < 0.15:
            content = damaged(content, draw)
        files += [f"--{name}", str(sandbox.write(f"in/{name}{form}", content))]
    run = sandbox.copy(draw.choice(("bert", "gpt2", "elmo", "linformer", "translator")))
    run = run.rename(run.with_name("run"))
    words = ["tune", str(run), *files, "--task", task, "--seeds", "1", "--epochs", "1"]
    if draw.random() < 0.2:
        words += ["--pair", draw.choice(("second", "text", "label", ""))]
    if draw.random() < 0.1:
        words += ["--compare"]
    if draw.random() < 0.1:
        words += ["--max-length", draw.choice(("2", "5", "0", "-1", "100000"))]
    return [Command([*words, "--out", sandbox.out, *draw.choice(([], ["--json"]))])]


def _table(task: str, form: str, draw: random.Random) -> str:
    """Rows of a task, some of them odd."""
    rows = []
    for line in sentences(draw, draw.choice((0, 1, 6, 20, 20, 20))):
        words = line.split()
        label = f"{draw.uniform(0, 5):.2f}" if task == "regress" else draw.choice("ab")
        if draw.random() < 0.02:
            label = draw.choice(("", "nan", "inf", "1e400", "x" * 3_000, " ", *ODD))
        if draw.random() < 0.04:
            line = draw.choice(("", "x" * 30_000, "ba " * 3_000, *ODD))
        rows.append({"text": line, "second": draw.choice(words), "label": label})
    if form == ".jsonl":
        return "\n".join(_jsons(row, draw) for row in rows)
    glue = "\t" if form == ".tsv" else ","
    head = ["text", "second", "label"] if draw.random() < 0.97 else ["text", "text", "x"]
    lines = [glue.join(head), *(glue.join(row.values()) for row in rows)]
    return draw.choice(("\n", "\n", "\r\n")).join(lines)


def _jsons(row: dict[str, str], draw: random.Random) -> str:
    values: dict[str, object] = dict(row)
    if draw.random() < 0.02:
        values[draw.choice(list(values))] = draw.choice((None, 3, [], {}, [[]], True, 1e400))
    return (
        json.dumps(values) if draw.random() < 0.995 else draw.choice(("", "{", "[]", "null", "7"))
    )
