"""The text of a run: its tokenizer and token shards, made where they are not there yet."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from foreword.data.holdout import find_apart
from foreword.data.prepare import prepare
from foreword.data.prepared import Prepared, oddities
from foreword.data.reading import ReadSettings, find_files, read_documents
from foreword.errors import UserError
from foreword.text.tokenizer import Tokenizer
from foreword.text.training import describe
from foreword.train import checkpoint
from foreword.train.recipe import Recipe

Stage = Callable[[str], Callable[[float, float], None]]  # a stage's name -> its progress callback


def require_texts(
    texts: Sequence[str], heldout: Sequence[str] = (), read: ReadSettings | None = None
) -> None:
    """Makes sure that there are such texts, and none that is both trained on and held out.

    Raises:
        UserError: there are not.
    """
    if not is_prepared(texts):
        find_apart(heldout, find_files(texts, None, read), None, read)
    elif heldout:
        raise UserError(
            f"--heldout: {texts[0]} holds out text already; 'foreword prepare --heldout' makes "
            "token shards with text of your own held out"
        )


def corpus(recipe: Recipe, run: Path, stage: Stage) -> tuple[Tokenizer, Prepared]:
    """The run's tokenizer and shards, made where they are not there yet.

    Raises:
        UserError: the text is gone, of another tokenizer, or the same token over and over.
    """
    provenance = json.loads((run / "run.json").read_text(encoding="utf-8"))
    texts, given = provenance["texts"], provenance["tokenizer"]
    if not texts:
        raise UserError(
            f"{run}: was imported and has no text to go on with; "
            f"'foreword pretrain RECIPE --from {run} --data TEXT' starts a run from its weights"
        )
    if is_prepared(texts):
        prepared = Prepared.load(Path(texts[0]))
        given = given or str(prepared.tokenizer)
    tokenizer = _tokenizer(recipe, run, texts, given, stage)
    made = run / "shards"
    if checkpoint.all_in(run) and is_prepared([str(made)]):
        return tokenizer, Prepared.load(made)  # the run's own; the text may be gone by now
    if not is_prepared(texts):
        progress = stage("cutting text into tokens")
        prepared = prepare(
            texts,
            tokenizer,
            made,
            recipe.prepare,
            recipe.read,
            progress,
            provenance.get("heldout", ()),
        )
        stage("reusing the token shards made before" if prepared.reused else "token shards made")
    elif prepared.manifest["tokenizer"]["fingerprint"] != tokenizer.fingerprint:
        raise UserError(f"{texts[0]}: these shards were made with another tokenizer")
    if prepared.train.tokens_total:
        prepared.train.require_variety()
    return tokenizer, prepared


def _tokenizer(
    recipe: Recipe, run: Path, texts: Sequence[str], given: str | None, stage: Stage
) -> Tokenizer:
    folder = run / "tokenizer"
    if (folder / "tokenizer.json").is_file():
        return Tokenizer.load(folder)
    if given is not None:
        tokenizer = Tokenizer.load(given)
    else:
        stage("training the tokenizer")
        documents = read_documents(texts, recipe.read)
        tokenizer = recipe.tokenizer.train(document.text for document in documents)
    tokenizer.save(folder)
    return tokenizer


def is_prepared(texts: Sequence[str]) -> bool:
    """Whether the text given is one folder of shards that `prepare` wrote."""
    return len(texts) == 1 and (Path(texts[0]) / "prepared.json").is_file()


def describe_text(prepared: Prepared, tokenizer: Tokenizer) -> list[str]:
    """A line on what was read, and on whatever of it was not as it should be.

    And another on what the tokenizer was trained on, if that is known.
    """
    train, heldout = prepared.counts["train"], prepared.counts["heldout"]
    odd = oddities(prepared.manifest["read"]["counts"], train.unknown + heldout.unknown)
    read = (
        f"{train.documents + heldout.documents:,} documents: {train.tokens:,} tokens to train on, "
        f"{heldout.tokens:,} held out"
        + "".join(f"; {count:,} {what}" for what, count in odd.items())
    )
    trained = describe(tokenizer)
    return [read, f"tokenizer trained on {trained}"] if trained else [read]
