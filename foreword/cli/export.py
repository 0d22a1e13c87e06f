"""`foreword export`: a run in a form that others' software reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from foreword.cli import console
from foreword.cli._model_options import Json, Run


def export(
    run: Run,
    out: Annotated[Path, typer.Option("--out", help="The folder or file to make.")],
    format: Annotated[  # noqa: A002
        str, typer.Option(help="hf (Hugging Face), arpa (n-grams), word2vec (vectors of words).")
    ] = "hf",
    family: Annotated[
        str, typer.Option(help="Of hf: bert, gpt2, ...; the one that fits if unsaid.")
    ] = "",
    binary: Annotated[
        bool, typer.Option("--binary", help="Of word2vec: numbers in binary, not in text.")
    ] = False,
    json: Json = False,
) -> None:
    """Export a run for other software.

    hf is a folder that AutoModel and AutoTokenizer of transformers read without code of ours, and
    arpa a file of n-grams that KenLM reads; `foreword import` makes the same run of it again.
    word2vec is a file of vectors that gensim reads, of any model that has embeddings.
    """
    from foreword.runs.trained_model import open_run

    wanted = open_format(format, family=family, binary=binary)
    trained = open_run(run, "cpu")
    for note in trained.notes:
        console.say(note)
    found = wanted.write(trained, out)
    for note in found.notes:
        console.say(note)
    if json:
        console.emit(found.facts)
    else:
        console.facts({key: value for key, value in found.facts.items() if value is not None})


def open_format(name: str, **settings: Any) -> Any:
    """The format of a name, with the settings that were given.

    Raises:
        UserError: there is none, or it has no such setting.
    """
    from foreword import config, kinds

    given = {key: value for key, value in settings.items() if value}
    part = kinds.Part("interop/formats")
    return config.build_kind(part, {"kind": name, **given}, "--format")
