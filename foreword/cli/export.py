"""`foreword export`: write a run in a format that other software reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from foreword.cli import console
from foreword.cli._model_options import Json, Run


def export(
    run: Run,
    out: Annotated[Path, typer.Option("--out", help="Folder or file to create.")],
    format: Annotated[  # noqa: A002
        str, typer.Option(help="hf (Hugging Face), arpa (n-grams) or word2vec (word vectors).")
    ] = "hf",
    family: Annotated[
        str, typer.Option(help="With hf: bert, gpt2, ...; default: the first that matches.")
    ] = "",
    binary: Annotated[
        bool, typer.Option("--binary", help="With word2vec: the binary format, not the text one.")
    ] = False,
    adapter: Annotated[
        Path | None,
        typer.Option(
            "--adapter",
            help="Of a model tuned with lora: the change alone, for peft. The run it began with.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Export a run or a fine-tuned model for other software.

    hf writes a folder that AutoModel and AutoTokenizer of transformers load without custom code;
    of a fine-tuned model, AutoModelForSequenceClassification and
    pipeline("text-classification", FOLDER, truncation=True), which cuts texts as Foreword does;
    of sentence embeddings, SentenceTransformer of sentence_transformers.
    arpa writes a file of n-grams that KenLM reads. `foreword import` reads both back. word2vec
    writes a file of vectors that gensim reads, for any model with embeddings.

    --adapter RUN writes the change of a model tuned with lora alone, which PeftModel of peft puts
    on RUN's own export, opened with the adapter's config.json.
    """
    from foreword.runs.trained_model import open_run

    if adapter is not None:
        _export_adapter(run, adapter, out, format, family, as_json=json)
        return
    if (run / "labels.json").is_file() and not (run / "run.json").is_file():
        _export_tuned(run, out, format, family, as_json=json)
        return
    exporter = open_format(format, family=family, binary=binary)
    trained = open_run(run, "cpu")
    for note in trained.notes:
        console.say(note)
    exported = exporter.write(trained, out)
    for note in exported.notes:
        console.say(note)
    if json:
        console.emit(exported.facts)
    else:
        console.facts({key: value for key, value in exported.facts.items() if value is not None})


def _export_tuned(tuned: Path, out: Path, form: str, family: str, *, as_json: bool) -> None:
    """Export a fine-tuned model with its head.

    Raises:
        UserError: the format is not hf, or transformers has no such model.
    """
    from foreword.errors import UserError
    from foreword.interop.formats.hf import unchecked
    from foreword.tuning import exporting
    from foreword.tuning.predict import load_tuned

    if form != "hf":
        raise UserError(f"--format {form}: a fine-tuned model is exported as hf")
    model = load_tuned(tuned, "cpu")
    exported = exporting.export(model, out, family)
    for note in (*exported.notes, *unchecked(exported.difference)):
        console.say(note)
    facts = {"folder": str(out), "architecture": exported.architecture, **exported.difference}
    if as_json:
        console.emit(facts)
    else:
        console.facts({key: value for key, value in facts.items() if value is not None})


def _export_adapter(
    tuned: Path, base: Path, out: Path, form: str, family: str, *, as_json: bool
) -> None:
    """Export the change that LoRA made.

    Raises:
        UserError: the format is not hf, or there is no such change.
    """
    from foreword.errors import UserError
    from foreword.tuning import adapter

    if form != "hf":
        raise UserError(f"--adapter: requires --format hf, got {form}")
    change = adapter.export(tuned, base, out, family)
    if change.tokens is not None:
        console.say(f"the vocabulary has grown: resize_token_embeddings({change.tokens}) first")
    facts = {
        "folder": str(out),
        "rank": change.rank,
        "matrices": len(change.factors),
        "saved whole": ", ".join(change.whole) or None,
    }
    if as_json:
        console.emit(facts)
    else:
        console.facts({key: value for key, value in facts.items() if value is not None})


def open_format(name: str, **settings: Any) -> Any:
    """Return the format called `name`, with the settings given.

    Raises:
        UserError: there is no such format, or it has no such setting.
    """
    from foreword import config, kinds

    options = {key: value for key, value in settings.items() if value}
    part = kinds.Part("interop/formats")
    return config.build_kind(part, {"kind": name, **options}, "--format")
