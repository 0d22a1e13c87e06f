"""`foreword tokenizer`: train or inspect a tokenizer, or watch BPE learn."""

from __future__ import annotations

from dataclasses import asdict
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli import console
from foreword.cli._model_options import Json, Quiet
from foreword.cli._options import PathText, flat, naming
from foreword.cli._reading import Reading
from foreword.errors import UserError
from foreword.ranges import Count, CountOrZero

if TYPE_CHECKING:
    from foreword.text.tokenizer import Tokenizer

EXAMPLE = ("low:5", "lower:2", "newest:6", "widest:3")
_COLOURS = ("black on bright_cyan", "black on bright_yellow", "black on bright_green")
_SAMPLE = 24  # pieces shown

app = typer.Typer(no_args_is_help=True, help="Train or inspect a tokenizer, or watch BPE learn.")


@app.command()
@flat
def train(
    files: Annotated[
        list[PathText], typer.Argument(metavar="FILES...", help="Text files or folders.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the tokenizer.")],
    reading: Reading,
    kind: Annotated[str, typer.Option(help="wordpiece, bpe, unigram, word or char.")] = "wordpiece",
    vocab: Annotated[
        Count | None, typer.Option(help="Vocabulary size, special tokens included.")
    ] = None,
    assign: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting: tokenizer.lowercase=false; repeatable."),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a tokenizer on text, and save it for Foreword and transformers."""
    from foreword import config, kinds
    from foreword.api.progress import progress_of
    from foreword.data.learning import train_tokenizer
    from foreword.data.prepared_text import MANIFEST, data_warnings
    from foreword.data.text_files import ReadCounts, ReadSettings
    from foreword.runs.run import require_not_a_run

    require_not_a_run(out)
    if (out.absolute().parent / MANIFEST).is_file():
        raise UserError(f"{out}: belongs to the token shards made with it; choose another --out")
    options = {"kind": kind} | ({} if vocab is None else {"vocab": vocab})
    table = config.assign({"tokenizer": options}, assign or [])
    part = kinds.Part("text/tokenizers", kind)
    with naming(kind="--kind", vocab="--vocab"):
        trainer = config.build_kind(part, table.pop("tokenizer"), "tokenizer")
    if table:
        raise UserError(f"--set {next(iter(table))}: only tokenizer.* can be set here")
    counts = ReadCounts()
    with progress_of(not quiet) as display, naming(vocab="--vocab"):
        tokenizer = train_tokenizer(
            trainer, files, reading.on(ReadSettings()), display.stage, counts
        )
    tokenizer.save(out)
    facts = _facts(tokenizer) | {"folder": str(out)}
    if as_json:
        console.emit(facts | {"read": asdict(counts)})
    else:
        _say_facts(tokenizer, facts | data_warnings(asdict(counts)))


@app.command()
@flat
def show(
    folder: Annotated[Path, typer.Argument(help="A tokenizer folder, or a tokenizer.json.")],
    text: Annotated[str | None, typer.Option(help="A text to tokenize.")] = None,
    as_json: Json = False,
) -> None:
    """Show a tokenizer: its size, special tokens, some pieces, and how it splits a text."""
    from foreword.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(folder)
    facts = _facts(tokenizer)
    ids = None if text is None else tokenizer.encode(text, special=True).tolist()
    if as_json:
        cut = {} if ids is None else _cut(tokenizer, text or "", ids)
        console.emit(facts | {"pieces": _some_pieces(tokenizer)} | cut)
        return
    _say_facts(tokenizer, facts)
    _say_tokens("some pieces", _some_pieces(tokenizer))
    if ids is not None:
        cut = _cut(tokenizer, text or "", ids)
        _say_tokens("the text", cut["tokens"])
        console.facts({"ids": " ".join(map(str, ids)), "decoded": cut["decoded"]})
        console.facts({"tokens": len(ids), "bytes per token": cut["bytes_per_token"]})


@app.command()
@flat
def trace(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="WORD:COUNT...", help=" ".join(EXAMPLE))
    ] = None,
    segment: Annotated[
        list[str] | None, typer.Option(help="A word to segment with the merges learned.")
    ] = None,
    merges: Annotated[CountOrZero, typer.Option(help="Maximum number of merges.")] = 10,
    as_json: Json = False,
) -> None:
    """Watch byte-pair encoding learn from a small dictionary, merge by merge."""
    from foreword.text import trace as bpe

    counts = _parse_counts(" ".join(words or EXAMPLE).split())
    unseen = segment or (["lowest"] if counts == _parse_counts(EXAMPLE) else [])
    steps = bpe.learn(counts, merges)
    cuts = {word: bpe.segment(word, steps) for word in unseen}
    if as_json:
        console.emit(
            {
                "merges": [
                    {
                        "pair": step.pair,
                        "count": step.count,
                        "symbol": step.symbol,
                        "vocab": step.vocab,
                        "words": step.words,
                    }
                    for step in steps
                ],
                "segmented": cuts,
            }
        )
        return
    start = tuple(tuple(word) for word in counts)
    letters = {letter for word in start for letter in word}
    rows: list[tuple[Any, ...]] = [(0, "", "", "(letters)", len(letters), _spaced(start))]
    for n, step in enumerate(steps, 1):
        row = (n, " ".join(step.pair), step.count, step.symbol, step.vocab, _spaced(step.words))
        rows.append(row)
    columns = ("step", "pair", "count", "new symbol", "vocabulary", "words")
    console.table("", columns, rows)
    console.facts({word: " ".join(cut) for word, cut in cuts.items()})


def _parse_counts(words: list[str] | tuple[str, ...]) -> dict[str, int]:
    """Return `low:5` as {"low": 5}; a word without a count occurs once."""
    counts: dict[str, int] = {}
    for argument in words:
        word, colon, number = argument.rpartition(":")
        if not colon:
            word, number = argument, "1"
        if not word or not (number.isascii() and number.isdigit()) or int(number) < 1:
            raise UserError(f"'{argument}': expected WORD:COUNT, such as low:5")
        counts[word] = counts.get(word, 0) + int(number)
    return counts


def _facts(tokenizer: Tokenizer) -> dict[str, Any]:
    vocab = tokenizer.vocab
    sample = tokenizer.sample
    facts: dict[str, Any] = {
        "kind": tokenizer.kind.get("kind", "made elsewhere"),
        "vocab": vocab.size,
        "special": dict(vocab.special),
        "sentinels": len(vocab.sentinels),
        "words_begin_with": int((vocab.starts_word & ~vocab.is_special).sum()),
        "fingerprint": tokenizer.fingerprint,
    }
    if sample is not None:
        facts["sample"] = asdict(sample)
    return facts


def _say_facts(tokenizer: Tokenizer, facts: dict[str, Any]) -> None:
    from foreword.text.training import describe

    lines = dict(facts)
    lines["special"] = " ".join(f"{name} {i}" for name, i in facts["special"].items())
    lines["begin a word"] = lines.pop("words_begin_with")
    if lines.pop("sample", None):
        lines["trained on"] = describe(tokenizer)
    console.facts(lines)


def _some_pieces(tokenizer: Tokenizer) -> list[str]:
    """Return evenly spaced ordinary pieces, from the first to the last."""
    import numpy as np

    ordinary = np.flatnonzero(~tokenizer.vocab.is_special)
    picks = np.linspace(0, len(ordinary) - 1, min(_SAMPLE, len(ordinary))).astype(int)
    return [tokenizer.token(int(i)) for i in ordinary[picks]]


def _cut(tokenizer: Tokenizer, text: str, ids: list[int]) -> dict[str, Any]:
    return {
        "tokens": [tokenizer.token(i) for i in ids],
        "ids": ids,
        "decoded": tokenizer.decode(ids, skip_special=False),
        "bytes_per_token": len(text.encode()) / len(ids) if ids else None,
    }


def _say_tokens(label: str, tokens: list[str]) -> None:
    """Print tokens side by side, neighbours in different colours."""
    from rich.text import Text

    line = Text(f"{label}  ")
    for token, colour in zip(tokens, cycle(_COLOURS), strict=False):
        line.append(token, style=colour)
        line.append(" ")
    console.out.print(line)


def _spaced(words: tuple[tuple[str, ...], ...]) -> str:
    return "  ".join("·".join(word) for word in words)
