"""A run that continues a trained model: its recipe and text, from its `[continuation]`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foreword.data.mixture import DataSettings, Source
from foreword.data.prepared_text import PreparedText
from foreword.data.read_documents import ReadCounts, find_files, read_documents
from foreword.runs.continued import StartingModel
from foreword.runs.corpus import is_prepared, parts_of
from foreword.runs.recipe import Recipe
from foreword.runs.run_folder import Run, is_run
from foreword.settings import config
from foreword.text import words
from foreword.text.tokenizer import Tokenizer
from foreword.train import checkpoint
from foreword.train.budget import Budget

OF_MODEL = ("model", "objective", "layout", "packing", "optimizer", "tokenizer", "family", "paper")
SAMPLE_BYTES = 4_000_000  # of text, read to count its tokens
SAMPLE_TOKENS = 50_000  # of the model's own text, to compare it with
PUBLISHED_RATE = 2e-4  # peak of a model that was trained elsewhere, at a rate that is not known
POOR_FIT = 1.3  # times the tokens a word of the model's own text


def continued_recipe(
    trained: StartingModel,
    recipe: Recipe,
    assignments: Sequence[str] = (),
    *,
    has_budget: bool = False,
) -> Recipe:
    """Return the recipe with what has to suit the model's weights, and its share of their rate.

    Args:
        trained: the model to continue.
        recipe: the recipe, with a continuation.
        assignments: `--set`, which is above what comes from the model.
        has_budget: whether a budget was given, which replaces the limits of the continuation.
    """
    rules, own = recipe.continuation, trained.recipe
    assert rules is not None
    of_model = config.to_table(own)
    table = config.to_table(recipe) | {name: of_model[name] for name in OF_MODEL}
    peak = own.optimizer.lr if _tokens_read(trained) else PUBLISHED_RATE
    table["optimizer"] |= {"lr": peak * rules.lr}
    table["train"] |= {"batch": own.train.batch, "batch_tokens": own.train.batch_tokens}
    table["prepare"] |= {"sentences": own.prepare.sentences}
    others = [text for text in assignments if text.strip().partition(".")[0] != "model"]
    continued = config.build(Recipe, config.assign(table, others))
    limits: dict[str, Any] = {"epochs": None, "share": None} if has_budget else {}
    return replace(continued, continuation=replace(rules, **limits))


def with_text(
    trained: StartingModel,
    recipe: Recipe,
    texts: Sequence[str],
    note: Callable[[str], None],
    *,
    is_extended: bool,
) -> tuple[Recipe, tuple[str, ...]]:
    """Return a recipe of `continued_recipe` with its budget and replay, as if written out.

    Args:
        trained: the model to continue.
        recipe: the recipe.
        texts: the new text, or the path of each of the recipe's sources.
        note: receives what a reader of the run has to know, a line each.
        is_extended: whether the vocabulary will be, so that the model's shards no longer fit.
    """
    rules = recipe.continuation
    assert rules is not None
    recipe = replace(recipe, continuation=None)
    new = [_Sample.of(text, trained.tokenizer, recipe) for text in texts]
    total = sum(sample.tokens for sample in new)

    # Replay: the model's own text beside the new text.
    own: list[Source] = []
    if rules.replay and not recipe.data.sources:
        own = _own_text(trained, rules.replay, is_extended=is_extended)
        if not own:
            note(f"no replay: the training text of {trained.name} is not there")
    if own:
        names = ["new", *(f"new-{n}" for n in range(2, len(texts) + 1))]
        weights = [max(sample.tokens, 1.0) / max(total, 1.0) for sample in new]
        sources = [
            Source(name, text, (1 - rules.replay) * weight)
            for name, text, weight in zip(names, texts, weights, strict=True)
        ]
        recipe = replace(recipe, data=DataSettings((*sources, *own)))
        texts = [source.path for source in recipe.data.sources]

    # The budget: whichever of both limits comes first.
    share = rules.replay if own else 0.0
    limits: dict[float, str] = {}
    if rules.epochs is not None:
        passes = f"{rules.epochs:g} epoch{'s' * (rules.epochs != 1)}"
        limits[rules.epochs * total / (1 - share)] = f"{passes} of the new text"
    if rules.share is not None and (spent := _tokens_read(trained)):
        limits[rules.share * spent] = f"{rules.share:.0%} of those that it was trained on"
    if limits:
        tokens = max(min(limits), recipe.rows_per_step * recipe.packing.length)
        recipe = replace(recipe, train=Budget("tokens", tokens).applied_to(recipe.train))
        note(
            f"continues {trained.name} for {tokens:,.0f} tokens ({limits[min(limits)]})"
            + (f", {share:.0%} of them from its own text" if own else "")
        )

    # A tokenizer that cuts the text into more pieces than its own costs accuracy and time.
    usual = _usual(own, trained.tokenizer)
    here = sum(s.sampled for s in new) / max(sum(s.words for s in new), 1)
    if usual and here > POOR_FIT * usual and not is_extended:
        note(
            f"the tokenizer fits this text badly: {here:.2f} tokens a word, {usual:.2f} in its own "
            "text; --extend-vocabulary 2000 of 'foreword pretrain adapt_encoder' learns new ones"
        )
    return recipe, tuple(texts)


@dataclass(frozen=True)
class _Sample:
    """What is known of a text from its beginning.

    Attributes:
        tokens: tokens of all of it, estimated if it is long.
        sampled: tokens of the beginning.
        words: words of the beginning.
    """

    tokens: float
    sampled: int = 0
    words: int = 0

    @classmethod
    def of(cls, text: str, tokenizer: Tokenizer, recipe: Recipe) -> _Sample:
        if is_prepared([text]):
            return cls(PreparedText.load(text, verify=False).counts["train"].tokens)
        counts, files = ReadCounts(), find_files([text], None, recipe.read)
        around = sum(map(bool, recipe.bos_and_eos))
        tokens = sampled = of_words = 0
        for document in read_documents(files, recipe.read, counts):
            count = len(tokenizer.encode(document.text))
            sampled, tokens = sampled + count, tokens + count + around
            of_words += len(words.split(document.text))
            if counts.bytes >= SAMPLE_BYTES:
                break
        size = counts.total_bytes(sum(file.stat().st_size for file in files))
        return cls(tokens * size / max(counts.bytes, 1), sampled, of_words)


def _tokens_read(trained: StartingModel) -> float:
    """Return the tokens that a model was trained on here; 0 if it was trained elsewhere."""
    if trained.is_foreign:
        return 0.0
    return float(checkpoint.read_state(trained.folder).get("spent", {}).get("tokens", 0))


def _own_text(trained: StartingModel, share: float, *, is_extended: bool) -> list[Source]:
    """Return the sources of a run's own text in its mixture: shards, or its texts; none if gone."""
    if not is_run(trained.run) or not (run := Run(trained.run)).noted.get("texts"):
        return []
    found, data = [], run.recipe.data
    parts = parts_of(run)
    sizes = [
        PreparedText.load(part.shards, verify=False).train.tokens_total
        if is_prepared([str(part.shards)])
        else 1
        for part in parts
    ]
    weights = data.weights(sizes) if data.sources else [1.0]
    for part, weight in zip(parts, weights, strict=True):
        has_shards = is_prepared([str(part.shards)]) and not is_extended
        paths = [str(part.shards)] if has_shards else list(part.texts)
        if not has_shards and (is_prepared(paths) or not all(Path(p).exists() for p in paths)):
            return []
        name = f"own-{part.name}" if part.name else "own"
        for number, path in enumerate(paths, 1):
            numbered = name if len(paths) == 1 else f"{name}-{number}"
            found.append(Source(numbered, path, share * weight / len(paths)))
    return found


def _usual(own: Sequence[Source], tokenizer: Tokenizer) -> float:
    """Return the tokens a word of the model's own text; 0 if its shards are not there."""
    if not own or not is_prepared([own[0].path]):
        return 0.0
    shards = PreparedText.load(own[0].path, verify=False).train
    ids = shards.tokens[:SAMPLE_TOKENS].tolist()
    return len(ids) / max(len(words.split(tokenizer.decode(ids))), 1)
