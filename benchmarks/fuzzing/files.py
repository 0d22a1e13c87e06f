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
    rng = sandbox.rng
    suffix = rng.choice((".txt", ".md", ".jsonl", ".parquet", ".txt", ".jsonl", ""))
    packed = rng.choice(("", "", "", ".gz", ".zst"))
    content = damaged(_content(suffix, rng), rng) if rng.random() < 0.25 else _content(suffix, rng)
    if packed == ".gz":
        content = gzip.compress(content, mtime=0)
    elif packed == ".zst":
        content = pa.compress(content, codec="zstd", asbytes=True)
    if rng.random() < 0.1:
        content = damaged(content, rng)
    path = str(sandbox.write(f"in/some{suffix}{packed}", content))
    options = rng.choice(
        ([], [], *[["--errors", "replace"]] * 4, ["--field", "body"], ["--documents", "line"])
    )
    if rng.random() < 0.1:
        path = str(sandbox.folder / "in" / rng.choice(("*", "*.nothing", "", "**/*", "[")))
    return [Command([*_reader(sandbox, path), *options])]


def archive(sandbox: Sandbox) -> list[Command]:
    """A web archive whose records are odd, cut, emptied or of a wrong length."""
    rng = sandbox.rng
    records = [_web_record(rng) for _ in range(rng.choice((0, 1, 5, 30)))]
    packed = rng.choice(("", ".gz", ".gz"))
    if packed:
        records = [gzip.compress(record, mtime=0) for record in records]
    if records and rng.random() < 0.4:  # a record, or its member of gzip, is cut or damaged
        at = rng.randrange(len(records))
        one = records[at]
        records[at] = rng.choice((one[: rng.randrange(len(one))], damaged(one, rng)))
    content = b"".join(records)
    if rng.random() < 0.2:
        content = content[: rng.randrange(len(content) + 1)]
    path = str(sandbox.write(f"in/some.warc{packed}", content))
    cleaning = ["clean", path, "--workers", "1", "--set", "clean.steps[1].min_words=1"]
    words = cleaning if rng.random() < 0.25 else ["prepare", path, "--vocab", "400"]
    return [Command([*words, "--out", sandbox.out])]


def _web_record(rng: random.Random) -> bytes:
    """A record of a web archive; one in three is odd."""
    body = "".join(f"<p>{line}</p>" for line in sentences(rng, rng.choice((1, 30, 60)))).encode()
    kind, form, head, odd = "response", "application/http", "HTTP/1.1 200 OK", rng.random() < 0.33
    if odd:
        body = rng.choice((b"", body[:40], damaged(body, rng), b"\x00" * 99, "é".encode("utf-16")))
        kind = rng.choice(("response", "response", "resource", "conversion", "warcinfo", "dns", ""))
        form = rng.choice((form, form, "text/dns", "text/html", "", "application/http; x=\xff"))
        head = rng.choice((head, "HTTP/1.1 404 No", "HTTP/9", "ICY 200", "", "HTTP/1.1 x OK"))
    fields = rng.choice(("", "Content-Encoding: gzip\r\n", "Transfer-Encoding: chunked\r\n", ":"))
    block = body
    if form.startswith("application/http"):
        fields = f"Content-Type: text/html\r\n{fields if odd else ''}"
        block = f"{head}\r\n{fields}\r\n".encode() + body
    length: object = len(block)
    if odd:
        wrong = (0, len(block) - 5, len(block) + 5, 10**12, -1, "", "many", "9" * 5000)
        length = rng.choice((length, length, rng.choice(wrong)))
    lines = ("WARC/1.0", f"WARC-Type: {kind}", f"Content-Type: {form}", f"Content-Length: {length}")
    return "\r\n".join((*lines, "\r\n")).encode("latin-1") + block + b"\r\n\r\n"


def _reader(sandbox: Sandbox, path: str) -> list[str]:
    """A verb, and the file where it reads it."""
    words = ["--set", "train.batch=2", "--set", "tokenizer.vocab=400", "--steps", "1"]
    recipe = sandbox.rng.choice(("gpt2_tiny", "bert_tiny", "ngram_tiny", "word2vec_tiny"))
    if recipe in ("ngram_tiny", "word2vec_tiny"):
        words = []
    run = sandbox.fixtures / sandbox.rng.choice(("gpt2", "ngram", "bert"))
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
    return sandbox.rng.choice(ways)()


def _content(suffix: str, rng: random.Random) -> bytes:
    """Return the content of a file of this format, with oddities."""
    lines = sentences(rng, rng.choice((0, 1, 30, 200, 400, 400, 400)))
    for _ in range(rng.randint(0, 4)):
        lines.insert(rng.randint(0, len(lines)), rng.choice(ODD) * rng.choice((1, 1, 50)))
    if suffix == ".jsonl":
        return "\n".join(_record(line, rng) for line in lines).encode()
    if suffix == ".parquet":
        sink = io.BytesIO()
        columns = rng.choice(
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
    if rng.random() < 0.05:  # without spaces
        return rng.choice(("漢字仮名交", "ACGT", "\u200d", "7", "9a=")).encode() * 1_000
    glue = rng.choice(("\n", "\n", "\n\n", "\n\n", "\r\n", "\r", " ", "\x00"))
    encoding = rng.choice((*["utf-8"] * 8, "utf-16", "utf-8-sig", "utf-32-le"))
    return glue.join(lines * rng.choice((1, 1, 1, 20))).encode(encoding)


def _record(line: str, rng: random.Random) -> str:
    how = rng.random()
    if how < 0.998:
        return json.dumps({"text": line}, ensure_ascii=rng.random() < 0.5)
    return rng.choice(
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


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Bytes changed, lost, put in or cut off."""
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(content) + 1)
        how = rng.randrange(5)
        if how == 0:
            content = content[:at]
        elif how == 1:
            content = content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :]
        elif how == 2:
            content = content[:at] + b"\x00" * rng.choice((1, 100)) + content[at:]
        elif how == 3:
            content = content[:at] + rng.randbytes(rng.choice((1, 40))) + content[at:]
        else:
            content = content[:at] + content[at + rng.choice((1, 10, 1_000)) :]
    return content


def table(sandbox: Sandbox) -> list[Command]:
    """Labelled text, with odd rows, columns and labels, to fine-tune on."""
    rng = sandbox.rng
    task = rng.choice(("classify", "classify", "regress", "text_to_text"))
    form = rng.choice((".tsv", ".csv", ".jsonl"))
    files = []
    for name in ("train", "dev"):
        content = _table(task, form, rng).encode("utf-8", "surrogatepass")
        if rng.random() < 0.15:
            content = damaged(content, rng)
        files += [f"--{name}", str(sandbox.write(f"in/{name}{form}", content))]
    run = sandbox.copy(rng.choice(("bert", "gpt2", "elmo", "linformer", "translator")))
    run = run.rename(run.with_name("run"))
    words = ["tune", str(run), *files, "--task", task, "--seeds", "1", "--epochs", "1"]
    if rng.random() < 0.2:
        words += ["--pair", rng.choice(("second", "text", "label", ""))]
    if rng.random() < 0.1:
        words += ["--compare"]
    if rng.random() < 0.1:
        words += ["--max-length", rng.choice(("2", "5", "0", "-1", "100000"))]
    return [Command([*words, "--out", sandbox.out, *rng.choice(([], ["--json"]))])]


def _table(task: str, form: str, rng: random.Random) -> str:
    """Rows of a task, some of them odd."""
    rows = []
    for line in sentences(rng, rng.choice((0, 1, 6, 20, 20, 20))):
        words = line.split()
        label = f"{rng.uniform(0, 5):.2f}" if task == "regress" else rng.choice("ab")
        if rng.random() < 0.02:
            label = rng.choice(("", "nan", "inf", "1e400", "x" * 3_000, " ", *ODD))
        if rng.random() < 0.04:
            line = rng.choice(("", "x" * 30_000, "ba " * 3_000, *ODD))
        rows.append({"text": line, "second": rng.choice(words), "label": label})
    if form == ".jsonl":
        return "\n".join(_jsons(row, rng) for row in rows)
    glue = "\t" if form == ".tsv" else ","
    head = ["text", "second", "label"] if rng.random() < 0.97 else ["text", "text", "x"]
    lines = [glue.join(head), *(glue.join(row.values()) for row in rows)]
    return rng.choice(("\n", "\n", "\r\n")).join(lines)


def _jsons(row: dict[str, str], rng: random.Random) -> str:
    values: dict[str, object] = dict(row)
    if rng.random() < 0.02:
        values[rng.choice(list(values))] = rng.choice((None, 3, [], {}, [[]], True, 1e400))
    return json.dumps(values) if rng.random() < 0.995 else rng.choice(("", "{", "[]", "null", "7"))
