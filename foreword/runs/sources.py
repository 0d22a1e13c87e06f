"""The sources of a run's mixture: where their text is, their shards, the order of their rows."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from foreword.data.mixed_rows import MixedRows
from foreword.data.mixture import WORTH_IT, effective_epochs
from foreword.data.mixture_plan import MixturePlan
from foreword.data.prepared_text import HELDOUT, MANIFEST, PreparedText
from foreword.data.read_documents import canonical_name, find_files
from foreword.data.remote import is_url
from foreword.data.remote_tokens import local
from foreword.errors import UserError
from foreword.formatting import rounded
from foreword.runs.recipe import Recipe
from foreword.train.budget import Budget
from foreword.types import Vocab


def source_texts(recipe: Recipe, data: Sequence[str]) -> tuple[str, ...]:
    """Return the path of each source of a recipe.

    Args:
        recipe: a recipe with sources.
        data: the folder that relative paths start from; default: the current folder.

    Raises:
        UserError: `data` is not one folder.
    """
    if len(data) > 1 or (data and not Path(data[0]).is_dir()):
        what = f"got {len(data)} paths" if len(data) > 1 else f"and {data[0]} is none"
        raise UserError(
            "--data: the recipe names its sources, so this is the folder that their paths start "
            f"from, {what}"
        )
    root = Path(data[0]) if data else Path()
    paths = [source.path for source in recipe.data.sources]
    return tuple(
        local(path if is_url(path) else str(root / Path(path).expanduser())) for path in paths
    )


def is_prepared(text: str) -> bool:
    """Return whether a source is a folder of shards that `prepare` wrote."""
    return (Path(text) / MANIFEST).is_file()


def require_sources(recipe: Recipe, texts: Sequence[str]) -> None:
    """Check that every source exists, that none is read twice, and that tokenizers are the same.

    Args:
        recipe: a recipe with sources.
        texts: the path of each.

    Raises:
        UserError: one is missing, or is another's too; the setting is named.
    """
    seen: dict[str, str] = {}
    for number, (source, text) in enumerate(zip(recipe.data.sources, texts, strict=True)):
        where = f"data.sources[{number}]"
        with _named(f"{where}.path"):
            is_ready = is_prepared(text)
            files = [Path(text)] if is_ready else find_files([text], None, recipe.read)
        for file in files:
            if (other := seen.setdefault(canonical_name(file), source.name)) != source.name:
                raise UserError(f"{where}.path: {file} is also read by source '{other}'")
    names = (source.name for source in recipe.data.sources)
    require_one_tokenizer(dict(zip(names, texts, strict=True)))


def require_one_tokenizer(texts: Mapping[str, str]) -> None:
    """Check that the sources that are token shards were made with one tokenizer.

    Args:
        texts: the path of each source, by name.

    Raises:
        UserError: they were not, or some are damaged.
    """
    tokenizers: dict[str, str] = {}
    for name, text in texts.items():
        if is_prepared(text):
            prepared = PreparedText.load(text, verify=False)
            tokenizers[prepared.manifest["tokenizer"]["fingerprint"]] = name
    if len(tokenizers) > 1:
        names = " and ".join(f"'{name}'" for name in list(tokenizers.values())[:2])
        raise UserError(
            f"data.sources: the shards of {names} were made with different tokenizers; prepare "
            "them with one: 'foreword prepare TEXT --tokenizer FOLDER'"
        )


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Name the setting of a source in errors."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def given_tokenizer(texts: Sequence[str]) -> str | None:
    """Return the tokenizer of the first source of token shards; None without any."""
    folders = (Path(text) / "tokenizer" for text in texts if is_prepared(text))
    return next(map(str, folders), None)


STRETCH = 64  # steps for which a stream reads one source, in training of 64 times as many


def plan_of(recipe: Recipe, sizes: Sequence[float], rows_per_epoch: Sequence[float]) -> MixturePlan:
    """Return the source of each row.

    Args:
        recipe: sources, batch, budget and seed.
        sizes: tokens of each source.
        rows_per_epoch: rows of each source in one reading.

    Raises:
        UserError: no source is left to read before training ends.
    """
    rows = recipe.rows_per_step
    budget = Budget.of(recipe.train)
    # A budget in tokens counts those that the model reads: of an objective with source and target
    # about a row's, so the plan is as exact as that.
    rows_of_unit = {
        "steps": float(rows),
        "epochs": float(sum(rows_per_epoch)),
        "tokens": 1 / recipe.packing.length,
    }
    steps = None
    if budget.unit in rows_of_unit:
        steps = math.ceil(budget.amount * rows_of_unit[budget.unit] / rows - 1e-9)
    stretch = 1
    if recipe.packing.is_contiguous:  # shares and stages are exact to a stretch
        stretch = STRETCH if steps is None else min(max(1, steps // STRETCH), STRETCH)
    total = None if steps is None else steps * rows
    parts = [(part.begin, part.recipe.data.weights(sizes)) for part in recipe.segments()]
    limits = [source.epochs for source in recipe.data.sources]
    return MixturePlan(limits, parts, rows_per_epoch, total, rows, recipe.train.seed, stretch)


def mean_weights(recipe: Recipe, sizes: Sequence[float]) -> list[float]:
    """Return the share of each source in the whole training by weights alone."""
    parts = recipe.segments()
    ends = [*(part.begin for part in parts[1:]), 1.0]
    weights = [part.recipe.data.weights(sizes) for part in parts]
    lengths = [end - part.begin for part, end in zip(parts, ends, strict=True)]
    return [
        math.fsum(map(operator.mul, lengths, of_source)) for of_source in zip(*weights, strict=True)
    ]


def mixed_rows(recipe: Recipe, prepared: PreparedText, vocab: Vocab) -> MixedRows:
    """Return the rows of a mixture.

    Args:
        recipe: sources and packing.
        prepared: the shards of the sources.
        vocab: the vocabulary of the tokenizer.

    Raises:
        UserError: a source is shorter than a row, or none is left before training ends.
    """
    # Streams read stretches of a source one after the other, so it is one stream of its own.
    batch = 1 if recipe.packing.is_contiguous else recipe.rows_per_step
    packed = {
        name: recipe.packing.open(source.train, vocab, (recipe.train.seed + n) % 2**32, batch)
        for n, (name, source) in enumerate(prepared.sources.items())
    }
    sizes = [source.train.tokens_total for source in prepared.sources.values()]
    rows = [source.rows_per_epoch for source in packed.values()]
    return MixedRows(packed, plan_of(recipe, sizes, rows))


def mean_bytes_per_token(
    prepared: PreparedText, shares: Mapping[str, float], *, ends: bool
) -> float:
    """Return the bytes of held-out text per token, with the sources in these shares."""
    by_source = {
        name: source.bytes_per_token(HELDOUT, ends=ends)
        for name, source in prepared.sources.items()
    }
    total = sum(shares[name] for name in by_source) or 1.0
    return sum(shares[name] * value for name, value in by_source.items()) / total


def repetition(epochs: float) -> str:
    """Return in words what reading one text `epochs` times is worth; "" for at most one reading."""
    if epochs <= 1:
        return ""
    worth = effective_epochs(epochs)
    text = f"worth {rounded(worth)} epochs of new text"
    return text if epochs <= WORTH_IT else f"{text}; up to {WORTH_IT:g} are worth it"


def without_limits(recipe: Recipe) -> Recipe:
    """Return a recipe whose sources may be read any number of times."""
    sources = tuple(replace(source, epochs=None) for source in recipe.data.sources)
    return replace(recipe, data=replace(recipe.data, sources=sources))
