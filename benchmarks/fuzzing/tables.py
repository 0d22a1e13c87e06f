"""Labelled rows with one fault each, which must be refused for that fault, by file and row."""

from __future__ import annotations

import json
import random
from typing import Any

from fuzzing.case import Command, Sandbox
from fuzzing.fixtures import sentences

Row = dict[str, Any]
USER, ASSISTANT = "user", "assistant"


def _message(role: str, text: str) -> Row:
    return {"role": role, "content": text}


def sound(task: str, rng: random.Random) -> Row:
    """Return a row that a task can learn from."""
    text, other, more = sentences(rng, 3)
    first = text.split()[0]
    if task == "span":
        return {"context": text, "question": other, "answers": [{"text": first, "answer_start": 0}]}
    if task == "chat":
        return {"messages": [_message(USER, text), _message(ASSISTANT, other)]}
    if task == "prefer":
        return {"prompt": text, "chosen": f"{other} yes", "rejected": f"{more} no"}
    if task == "choice":
        return {"question": text, "options": [f"{other} a", f"{more} b"], "answer": "A"}
    if task == "tag":
        return {"words": text.split(), "labels": [rng.choice(("A", "B")) for _ in text.split()]}
    return {"text": text, "label": f"{rng.uniform(0, 5):.2f}" if task == "regress" else first}


# A fault in one row: the task, what is put in its place, and what its refusal says.
IN_ROWS: list[tuple[str, Row, str]] = [
    ("classify", {"text": {}}, "expected text or a number, got dict"),
    ("classify", {"text": ["a"]}, "expected text or a number, got list"),
    ("classify", {"label": {"a": 1}}, "expected text or a number, got dict"),
    ("regress", {"label": "much"}, "'much' is not a number"),
    ("regress", {"label": "1,2,3"}, "'1,2,3' is not a number"),
    ("regress", {"label": "inf"}, "'inf' is not a number"),
    ("regress", {"label": 1e300}, "too large to learn"),
    ("span", {"question": " "}, "the question is empty"),
    ("span", {"answers": [{"text": "Q!", "answer_start": 0}]}, "the answer 'Q!' is not in the"),
    ("span", {"answers": [{"text": "a"}]}, "expected answers with 'text' and 'answer_start'"),
    ("span", {"answers": "a"}, "expected answers with 'text' and 'answer_start'"),
    ("span", {"answers": {"text": ["a"], "answer_start": []}}, "expected answers with 'text'"),
    ("span", {"answers": [{"text": "a", "answer_start": "x"}]}, "expected answers with 'text'"),
    ("chat", {"messages": 3}, "expected a list of messages"),
    ("chat", {"messages": [3]}, "message 1: expected 'role' and 'content'"),
    ("chat", {"messages": [{"role": USER}]}, "message 1: expected 'role' and 'content'"),
    ("chat", {"messages": [_message(USER, "a"), _message(USER, "b")]}, "message 2 is by 'user'"),
    ("chat", {"messages": [_message(ASSISTANT, "a")]}, "message 1 is by 'assistant'"),
    ("chat", {"messages": [_message("tool", "a")]}, "message 1 is by 'tool'"),
    (
        "chat",
        {"messages": [_message(USER, "a"), _message(ASSISTANT, " ")]},
        "message 2: the answer is empty",
    ),
    ("chat", {"messages": [{"role": USER, "content": 3}]}, "'content' must be text"),
    ("prefer", {"chosen": "x", "rejected": "x"}, "the chosen and the rejected answer are the same"),
    ("prefer", {"chosen": " "}, "'chosen' is missing or empty"),
    ("prefer", {"rejected": None}, "'rejected' is missing or empty"),
    ("prefer", {"prompt": [_message(ASSISTANT, "a")]}, "message 1 is by 'assistant'"),
    ("prefer", {"chosen": [_message(USER, "a")]}, "nor a list of one message of the assistant"),
    ("choice", {"options": ["one"]}, "expected at least two options, got 1"),
    ("choice", {"options": ["one", " "]}, "option 1 is empty"),
    ("choice", {"options": "one"}, "'options' is not a list of options"),
    ("choice", {"answer": "Z"}, "the answer 'Z' is none of the 2 options"),
    ("choice", {"answer": 7}, "the answer '7' is none of the 2 options"),
    ("tag", {"labels": ["A"] * 99}, "as many labels as words are needed"),
    ("tag", {"words": ["a", ""], "labels": ["A", "B"]}, "word 2 is empty"),
    ("tag", {"words": [{}], "labels": ["A"]}, "expected text or a number, got dict"),
]

# A line in place of a row, by the ending of the file.
IN_LINES: list[tuple[str, bytes, str]] = [
    (".tsv", b"a\tb\tc", "3 columns, and 2 columns named"),
    (".tsv", b"a", "1 column, and 2 columns named"),
    (".tsv", b"\xff\ta", r"byte [\d,]+ \(0xff\) is not UTF-8"),
    (".csv", b"a,b,c", "3 columns, and 2 columns named"),
    (".csv", b'"a,b', "a quote begins in this row and never ends"),
    (".csv", b'"a"b,c', "is it really CSV"),
    (".jsonl", b'{"text": "a"', "not JSON"),
    (".jsonl", b"[1]", "expected an object with named values"),
    (".jsonl", b"null", "expected an object with named values"),
    (".jsonl", b'{"text": "\\ud800 a", "label": "b"}', "half a character"),
    (".jsonl", b"\xc3(", "is not UTF-8"),
    (".conll", b"a b c", "expected 2 columns as in the lines before, got 3"),
    (".conll", b"a", "expected 2 columns as in the lines before, got 1"),
    (".conllu", b"1\ta", "expected 10 columns separated by tabs, got 2"),
    (".conllu", b"7" + b"\ta" * 9, "expected word [12], got 7"),
    (".conllu", b"x" + b"\ta" * 9, "expected the number of a word, got 'x'"),
    (".conllu", b"1\t " + b"\ta" * 8, "word 1 has no form"),
]

# The content of a file, and what its refusal says.
WHOLE: list[tuple[str, str, bytes, str]] = [
    ("classify", ".tsv", b"", "is empty"),
    ("classify", ".tsv", b"x\tx\n1\t2\n", "two columns are named 'x'"),
    ("classify", ".tsv", b"a\tb\n1\t2\n", "no column 'text'; its columns: a, b"),
    ("classify", ".tsv", b"text\tlabel\n", "no row has both a text and a label"),
    ("classify", ".tsv", b"text\tlabel\na\t1\nb\t1\n", "at least two labels"),
    ("classify", ".jsonl", b"\n\n", "is empty"),
    ("classify", ".json", b'{"a": 1}', "JSON, but not a list of objects"),
    ("classify", ".json", b"[", "not JSON"),
    ("classify", ".json", b"[]", "is empty"),
    ("classify", ".json", b"[" * 9_000, "not JSON"),
    ("classify", ".parquet", b"PAR1", "not a Parquet file that can be read"),
    ("classify", ".csv.gz", b"text,label\n", "not readable as gzip"),
    ("classify", ".xls", b"a", "tables are .tsv, .csv"),
    ("span", ".json", b'{"data": [{"paragraphs": [{}]}]}', "not in SQuAD's layout.* no 'qas'"),
    (
        "span",
        ".json",
        b'{"data": [{"paragraphs": 3}]}',
        "not in SQuAD's layout.* a list or a table",
    ),
    ("span", ".json", b'{"data": [{"paragraphs": []}]}', "no question in it"),
    (
        "choice",
        ".jsonl",
        b'{"article": "a", "questions": ["b"], "options": [], "answers": []}',
        "expected as many of each; got 1 questions, 0 options, 0 answers",
    ),
    ("tag", ".conll", b"\n", "no sentence in it"),
    ("tag", ".conllu", b"1-2" + b"\ta" * 9 + b"\n\n", "ends within a range of words"),
]


def malformed(sandbox: Sandbox) -> list[Command]:
    """Return a command that reads rows with one fault, after sound ones and before others."""
    rng = sandbox.rng
    task, ending, content, message = fault(rng)
    path = str(sandbox.write(f"in/rows{ending}", content))
    run = sandbox.copy("gpt2" if task in ("chat", "prefer") else "bert")
    words = ["tune", str(run), "--train", path, "--dev", path, "--task", task, "--seeds", "1"]
    words += rng.choice(([], ["--bad-rows", "0"], ["--bad-rows", "0.001"]))
    return [Command([*words, "--out", sandbox.out], refused=message)]


def fault(rng: random.Random) -> tuple[str, str, bytes, str]:
    """Return a task, the ending and the content of a file, and what its refusal says."""
    weights = [len(IN_ROWS), len(IN_LINES), len(WHOLE)]
    return rng.choices([_in_row, _in_line, _whole], weights)[0](rng)


def _in_row(rng: random.Random) -> tuple[str, str, bytes, str]:
    task, change, message = rng.choice(IN_ROWS)
    rows = [sound(task, rng) for _ in range(rng.choice((2, 5, 60)))]
    at = rng.randrange(len(rows))
    rows[at] |= change
    if rng.random() < 0.3:
        return task, ".json", json.dumps(rows).encode(), rf"rows\.json:{at + 1}[: ].*{message}"
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    return task, ".jsonl", lines.encode(), rf"rows\.jsonl:{at + 1}[: ].*{message}"


def _in_line(rng: random.Random) -> tuple[str, str, bytes, str]:
    ending, line, message = rng.choice(IN_LINES)
    is_tagged = ending.startswith(".conll")
    glue = {".tsv": "\t", ".csv": ","}.get(ending, " ")
    lines = []
    for sentence in sentences(rng, rng.choice((3, 30))):
        word = sentence.split()[0]
        lines.append(f"{sentence}{glue}{word}")
        if ending == ".jsonl":
            lines[-1] = json.dumps({"text": sentence, "label": word})
        elif is_tagged:
            cells = f"1\t{word}" + "\tx" * 8
            lines[-1] = f"{cells if ending == '.conllu' else f'{word} A'}\n"
    at = rng.randrange(1, len(lines))
    content = [each.encode() for each in lines]
    content[at] = line + (b"\n" if is_tagged else b"")
    if ending in (".tsv", ".csv"):
        content.insert(0, glue.join(("text", "label")).encode())
    number = r"\d+" if is_tagged else str(at + 1 + (ending in (".tsv", ".csv")))
    end = rng.choice((b"\n", b"\r\n"))
    joined = b"\n".join(content).replace(b"\n", end)
    task = "tag" if is_tagged else "classify"
    return task, ending, joined, rf"rows{ending}:{number}: .*{message}"


def _whole(rng: random.Random) -> tuple[str, str, bytes, str]:
    return rng.choice(WHOLE)
