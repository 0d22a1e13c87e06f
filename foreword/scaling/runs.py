"""Tables of finished runs: parameters, tokens or FLOPs, and the loss that each reached."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from foreword.errors import UserError, nearest
from foreword.scaling.columns import RunColumns
from foreword.tables.given import given_table, items_of, records_table
from foreword.tables.read import read_table
from foreword.tables.table import ExampleTable
from foreword.types import Array

ONCE = 1.05  # epochs up to which text counts as read once
TOGETHER = 1.05  # runs whose FLOPs differ by less than this factor have one budget
FAR_FROM_SIX = 20.0  # times 6 N D, from which FLOPs are said to be so
PLATEAU = 0.97  # of the unigram loss, above which a run still lies on that plateau
FEWEST_SIZES = 4  # of a budget, to find its best one
# Other names under which tables have a column, in small letters with underscores for blanks.
ALIASES = {
    "parameters": ("params", "n_params", "model_size", "n"),
    "tokens": ("training_tokens", "d"),
    "flops": ("training_flops", "training_flop", "compute", "compute_budget", "c"),
    "loss": ("final_loss", "eval_loss", "heldout_loss"),
    "parameters_without_embeddings": ("non_embedding_parameters",),
    "unigram": ("unigram_loss",),
    "unique_tokens": ("unique_d",),
    "epochs": (),
}
NUMBERS = tuple(ALIASES)
SMALL = ("loss", "unigram", "epochs")  # in which a comma divides no thousands
THOUSANDS = re.compile(r"[1-9]\d{0,2}(,\d{3})+(\.\d*)?")  # 1,234,567.8
VOCABULARY = re.compile(r"([\d,]*\d)(\.0*)?")
SCORE = "score"  # the only number that may be 0, negative or missing
ALIASES |= {"loss_unit": ("unit",), "vocabulary": ("vocab", "vocab_size")}  # texts


@dataclass(frozen=True)
class Runs:
    """The measurements of a family, an item each.

    Attributes:
        family: its name; "" in a table without families.
        parameters: (items,).
        tokens: (items,).
        flops: (items,).
        loss: (items,).
        run: number of the run that was measured, (items,); of a run's checkpoints the same.
        cell: number of the size and budget, (items,); seeds share it.
        without_embeddings: parameters without embeddings, (items,), or None.
        unique_tokens: of the text, (items,), or None.
        score: of a task, (items,), nan where it was not measured; None if nowhere.
        vocabulary: tokens of the tokenizer; None if unknown or not the same in all.
        unit: of the loss; "" if unknown.
        notes: what was derived or left unread.
        where_read: the table and the family, in front of what is wrong.
    """

    family: str
    parameters: Array
    tokens: Array
    flops: Array
    loss: Array
    run: Array
    cell: Array
    without_embeddings: Array | None = None
    unique_tokens: Array | None = None
    score: Array | None = None
    vocabulary: int | None = None
    unit: str = ""
    notes: tuple[str, ...] = ()
    where_read: str = ""

    @property
    def epochs(self) -> Array:
        """How often each run read its text, (items,); below 1 if not to its end."""
        whole: Array = np.ones(len(self.tokens))
        return whole if self.unique_tokens is None else self.tokens / self.unique_tokens

    def where(self, chosen: Array) -> Runs:
        """Return some of the items, by truth values or numbers."""
        arrays: dict[str, Any] = {
            f.name: value[chosen]
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), np.ndarray)
        }
        return replace(self, **arrays)

    def counted_without_embeddings(self) -> Runs | None:
        """Return the same runs with their parameters without embeddings; None if unknown."""
        if self.without_embeddings is None:
            return None
        return replace(self, parameters=self.without_embeddings, without_embeddings=None)

    def flops_per_token(self) -> tuple[Array, Array] | None:
        """Return sizes and their FLOPs per token; None where these are six for each parameter."""
        sizes, which = np.unique(self.parameters, return_inverse=True)
        per_token = self.flops / self.tokens
        if np.all(np.abs(per_token / (6 * self.parameters) - 1) < 0.01):
            return None
        means = np.bincount(which, np.log(per_token)) / np.bincount(which)
        return sizes, np.exp(means)

    def budgets(self) -> list[Array]:
        """Return the items of each budget, by FLOPs; none if the runs form no budgets.

        A budget is a group of runs within 5 % of each other, of three sizes at least; at least two
        of three runs must be in one.
        """
        order = np.argsort(self.flops, kind="stable")
        flops = self.flops[order]
        ends = np.flatnonzero(flops[1:] > TOGETHER * flops[:-1]) + 1
        groups = [
            group
            for group in np.split(order, ends)
            if self.flops[group].max() <= TOGETHER * self.flops[group].min()
            and len(np.unique(self.parameters[group])) > 2
        ]
        grouped = sum(map(len, groups))
        return groups if len(groups) > 1 and 3 * grouped >= 2 * len(order) else []

    def seed_noise(self) -> float | None:
        """Return the loss's standard deviation between seeds of one size and budget, pooled.

        None unless three seeds or more have one size and budget.
        """
        counts = np.bincount(self.cell)
        if counts.max() < 3:
            return None
        means = np.bincount(self.cell, self.loss) / np.maximum(counts, 1)
        squares = float(((self.loss - means[self.cell]) ** 2).sum())
        return math.sqrt(squares / float(np.maximum(counts - 1, 0).sum()))


def has_begun(loss: Array, unigram: Array) -> Array:
    """Return whether losses have come 3 % below that of token frequencies, elementwise."""
    return np.asarray(loss < PLATEAU * unigram)


def read_runs(source: Any, columns: RunColumns | None = None) -> list[Runs]:
    """Return the runs of each family of a table.

    Args:
        source: a file (CSV, TSV, JSON, JSON lines, Parquet), or a DataFrame.
        columns: the names of its columns.

    Raises:
        UserError: a column is missing, a value is wrong, or the runs cannot tell sizes or budgets
            apart.
    """
    table = given_table(source, "table")
    if table is None and isinstance(source, str | PathLike):
        if Path(source).is_dir():
            raise UserError(f"{source}: is a folder; give a table of runs")
        table = read_table(Path(source))
    elif table is None:
        table = records_table(list(items_of(source, "table")), "table", ("parameters",))
    names = _names(table, columns or RunColumns())
    values: dict[str, list[Any]] = {key: [] for key in names}
    sources = []
    for number, row in table.sound_rows():
        where = table.source_of(number)
        sources.append(where)
        for key, name in names.items():
            value = row.get(name)
            said = f"{where}: {name}"
            if key == SCORE:
                values[key].append(_score(value, said))
            else:
                values[key].append(_number(value, said, key) if key in NUMBERS else str(value))
    if not sources:
        raise UserError(f"{table.path}: has no rows")
    read = {name.strip() for name in names.values()}
    unread = [name for name in table.columns if name.strip() not in read]
    notes = [f"columns not read: {', '.join(unread)}"] if unread else []
    notes += _derive(values)
    if "loss_unit" not in names and _plain(names["loss"]) in ("bits_per_byte", "bpb"):
        values["loss_unit"] = ["bits per byte"] * len(sources)
    families = values.get("family", [""] * len(sources))
    return [
        _family(
            f"{table.path}: family {family}: " if family else f"{table.path}: ",
            family,
            {
                k: [v for v, f in zip(of, families, strict=True) if f == family]
                for k, of in values.items()
            },
            [s for s, f in zip(sources, families, strict=True) if f == family],
            tuple(notes),
        )
        for family in dict.fromkeys(families)
    ]


def _plain(name: str) -> str:
    return re.sub(r"\W+", "_", name.strip().lower())


def _names(table: ExampleTable, columns: RunColumns) -> dict[str, str]:
    """Return the column of each quantity that the table has."""
    plain = {_plain(name): name for name in table.columns}
    names = {}
    for f in fields(columns):
        given = getattr(columns, f.name)
        option = f"--{f.name.replace('_', '-')}"
        if given and given not in table.columns:
            hint = nearest(given, table.columns)
            raise UserError(f"{table.path}: {option}: no column '{given}'{hint}")
        usual = (f.name, *ALIASES.get(f.name, ()))
        name = given or next((plain[word] for word in usual if word in plain), "")
        if name:
            names[f.name] = name
    known = ", ".join(table.columns)
    for key in ("parameters", "loss"):
        if key not in names:
            raise UserError(
                f"{table.path}: no column '{key}'; its columns: {known}; choose one with --{key}"
            )
    if not names.keys() & {"tokens", "flops"}:
        raise UserError(
            f"{table.path}: no column 'tokens' and none 'flops'; its columns: {known}; choose one "
            "with --tokens or --flops"
        )
    return names


def _number(value: Any, where: str, key: str) -> float:
    """Return a positive number; commas divide the thousands of counts."""
    text = str(value).strip() if value is not None else ""
    if not text or text.lower() in ("nan", "none", "na"):
        raise UserError(f"{where} is missing; leave the row out, or fill it in")
    try:
        is_count = key not in SMALL and THOUSANDS.fullmatch(text)
        number = float(text.replace(",", "") if is_count else text)
    except ValueError:
        hint = "; decimals take a point" if "," in text else ""
        raise UserError(f"{where}: expected a number, got '{value}'{hint}") from None
    if not 0 < number < math.inf:
        raise UserError(f"{where}: must be above 0 and finite, got {text}")
    return number


def _score(value: Any, where: str) -> float:
    """Return a score; nan for an empty cell."""
    text = "" if value is None else str(value).strip()
    try:
        return float(text or "nan")
    except ValueError:
        raise UserError(f"{where}: expected a number or nothing, got '{value}'") from None


def _derive(values: dict[str, list[Any]]) -> list[str]:
    """Add tokens, FLOPs and unique tokens where the table lacks them, and say so."""
    notes = []
    if "tokens" not in values:
        pairs = zip(values["flops"], values["parameters"], strict=True)
        values["tokens"] = [c / (6 * n) for c, n in pairs]
        notes = ["the table has no tokens: taken as FLOPs / (6 x parameters)"]
    elif "flops" not in values:
        pairs = zip(values["tokens"], values["parameters"], strict=True)
        values["flops"] = [6 * n * d for d, n in pairs]
        notes = ["the table has no FLOPs: taken as 6 x parameters x tokens"]
    columns = (values[key] for key in ("flops", "parameters", "tokens"))
    ratio = float(np.median([c / (6 * n * d) for c, n, d in zip(*columns, strict=True)]))
    if not 1 / FAR_FROM_SIX < ratio < FAR_FROM_SIX:
        notes = [f"FLOPs are {ratio:.3g} times 6 x parameters x tokens: are the units right?"]
    if "epochs" in values and "unique_tokens" not in values:
        pairs = zip(values["tokens"], values["epochs"], strict=True)
        values["unique_tokens"] = [d / epochs for d, epochs in pairs]
    return notes


def _family(
    where: str, family: str, values: Mapping[str, Sequence[Any]], sources: Sequence[str],
    notes: tuple[str, ...],
) -> Runs:  # fmt: skip
    """Return the runs of a family, checked."""
    arrays = {key: np.array(of) for key, of in values.items() if key in (*NUMBERS, SCORE)}
    if (unigram := arrays.pop("unigram", None)) is not None:
        is_learned = has_begun(arrays["loss"], unigram)
        if left := int((~is_learned).sum()):
            kept = np.flatnonzero(is_learned)
            line = f"left out: {left} runs that have learned little but the frequency of tokens"
            notes = (*notes, line)
            arrays = {key: array[kept] for key, array in arrays.items()}
            values = {key: [of[int(n)] for n in kept] for key, of in values.items()}
            sources = [sources[int(n)] for n in kept]
        if not len(arrays["loss"]):
            raise UserError(f"{where}no run has learned more than the frequency of tokens")
    for column, what in (("tokenizer", "tokenizers"), ("loss_unit", "units")):
        if len(names := sorted(set(values.get(column, ())))) > 1:
            raise UserError(
                f"{where}runs of several {what} ({', '.join(names)}), whose losses do not "
                "compare; fit each apart, as a family"
            )
    unit = next(iter(values.get("loss_unit", ())), "")
    sizes = (VOCABULARY.fullmatch(v.strip()) for v in values.get("vocabulary", ()))
    vocabularies = sorted({int(size[1].replace(",", "")) for size in sizes if size})
    if len(vocabularies) > 1 and not unit.startswith("bits per byte"):
        raise UserError(
            f"{where}runs of several vocabularies ({', '.join(map(str, vocabularies))}), whose "
            "losses per token do not compare; fit each apart, as a family, or give losses in bits "
            "per byte, with that in a column 'unit'"
        )
    # Each row is another run, seed or checkpoint.
    keys = ("parameters", "tokens", "flops", "unique_tokens", "seed", "checkpoint", "run")
    told_apart = [values[key] for key in keys if key in values]
    seen: dict[tuple[Any, ...], str] = {}
    for key, source in zip(zip(*told_apart, strict=True), sources, strict=True):
        if key in seen:
            raise UserError(
                f"{source}: the same run as {seen[key].rpartition(':')[2]}; number repeats in a "
                "column 'seed', or leave one out"
            )
        seen[key] = source
    # A run is what was trained at once: its checkpoints are drawn together.
    count = len(sources)
    if "run" in values:
        run = _numbered(values["run"])
    elif "checkpoint" in values:
        seeds = values.get("seed", [""] * count)
        run = _numbered(list(zip(values["parameters"], seeds, strict=True)))
    else:
        run = np.arange(count)
    cell = _cells(arrays["parameters"], arrays["flops"]) if "seed" in values else np.arange(count)
    if "unique_tokens" in arrays:
        unique = arrays["unique_tokens"]
        once = unique >= arrays["tokens"]  # whose number differs by seed, as its tokens do
        cell = _numbered(list(zip(cell, np.where(once, np.inf, unique), strict=True)))
    return Runs(
        family,
        arrays["parameters"],
        arrays["tokens"],
        arrays["flops"],
        arrays["loss"],
        run,
        cell,
        arrays.get("parameters_without_embeddings"),
        arrays.get("unique_tokens"),
        _measured(arrays.get(SCORE)),
        vocabularies[0] if len(vocabularies) == 1 else None,
        unit,
        notes,
        where,
    )


def _measured(scores: Array | None) -> Array | None:
    """Return scores, None if none was measured."""
    return None if scores is None or np.isnan(scores).all() else scores


def _numbered(keys: Sequence[Any]) -> Array:
    """Return the number of each key, equal for equal ones."""
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys])


def _cells(parameters: Array, flops: Array) -> Array:
    """Return a number for each size and budget, equal for runs within 5 % of the same FLOPs."""
    order = np.lexsort((flops, parameters))
    n, c = parameters[order], flops[order]
    is_new = np.concatenate([[True], (n[1:] != n[:-1]) | (c[1:] > TOGETHER * c[:-1])])
    cells = np.empty(len(order), int)
    cells[order] = np.cumsum(is_new) - 1
    return cells
