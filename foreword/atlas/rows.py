"""The rows of a page on claims: all that it tells, in two CSV files that it is written from.

No row leads back to results, so that verdicts whose results are elsewhere, or gone, stand in one
page with new ones.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from foreword.atlas.record import Findings
from foreword.atlas.verdict import FAILS, HOLDS, MISSING, NOT_SHOWN, Decision
from foreword.comparison.claim import Claim
from foreword.disk import atomic, stored
from foreword.errors import UserError
from foreword.evaluation.statistics import holm, interval
from foreword.formatting import at_most, duration, power

CLAIMS, CELLS = "claims.csv", "claims_cells.csv"
OF_DECISION = ("verdict", "number", "low", "high", "p", "seeds", "shows", "needs")
OF_CLAIM = ("sentence", "source", "measure", "least", "is_factor", "is_trend")
ORDER = (HOLDS, FAILS, NOT_SHOWN, MISSING)


@dataclass(frozen=True)
class TermRow:
    """What was measured of a term of a claim.

    Attributes:
        label: the cell, and "from scratch" or the name of a baseline.
        cell: the cell alone.
        at: of a trend its number, of a difference 1 or -1.
        mean: over seeds; nan without a value.
        half: half of the interval; nan of fewer than two seeds.
    """

    label: str
    cell: str
    at: float
    mean: float
    half: float


@dataclass(frozen=True)
class ClaimRow:
    """A claim with what was found.

    Attributes:
        claim: its name.
        verdict: as of `verdict.Decision`; so are number, low, high, p, p_holm, seeds, shows, needs.
        sentence: as of `Claim`; so are source, measure, least, is_factor and is_trend.
        predicted: the prediction in words.
        measured: the means of its cells in words.
        recorded: when the prediction was recorded, UTC.
        recorded_before: whether none of its cells was trained then.
        power: what could show it, in words.
        terms: what was measured of each term.
        scale: by how much budgets were multiplied.
        run: when, where and on what its cells were trained.
    """

    claim: str
    verdict: str
    sentence: str
    source: str
    predicted: str
    measured: str
    number: float
    low: float
    high: float
    least: float
    p: float
    p_holm: float
    seeds: int
    shows: float
    needs: int | None
    recorded: str
    recorded_before: bool
    measure: str
    is_factor: bool
    is_trend: bool
    power: str
    terms: tuple[TermRow, ...]
    scale: float
    run: str


@dataclass(frozen=True)
class CellRow:
    """A cell with the means of its trainings.

    Attributes:
        cell: its name.
        recipe: the name of its recipe.
        parameters: parameters.
        tokens: tokens that a training read.
        flops: FLOPs of a training.
        seeds: trainings.
        loss: held-out loss in nats per prediction; nan without one.
        bits_per_byte: nan if it does not predict all of a text.
        is_bound: whether the losses are upper bounds.
        run: as of `ClaimRow`.
        unigram: the loss of token frequencies on what it predicts; nan where none compares, and of
            pages that did not have it yet; so is epochs.
        epochs: how often a training read its text.
    """

    cell: str
    recipe: str
    parameters: int
    tokens: int
    flops: float
    seeds: int
    loss: float
    bits_per_byte: float
    is_bound: bool
    run: str
    unigram: float = math.nan
    epochs: float = math.nan


@dataclass(frozen=True)
class PageRows:
    """The claims of a page, and the cells that decide them."""

    claims: tuple[ClaimRow, ...] = ()
    cells: tuple[CellRow, ...] = ()

    def write(self, folder: Path) -> None:
        """Write claims.csv and claims_cells.csv.

        Raises:
            UserError: the disk is full or the folder cannot be written.
        """
        atomic.write_text(folder / CLAIMS, _csv(ClaimRow, self.claims))
        atomic.write_text(folder / CELLS, _csv(CellRow, self.cells))


def merged(found: Findings, out: Path, to: Path) -> PageRows:
    """Return the rows of an atlas, and those that earlier pages have of claims it does not decide.

    Holm's correction is over all of them; the decided ones are first.

    Args:
        found: the atlas.
        out: its folder, whose page's verdicts at the same scale are kept.
        to: the folder of the page to write; if it is another, all of its verdicts are kept.

    Raises:
        UserError: a page was not written by this version.
    """
    own = _rows(found)
    rows = {row.claim: row for row in own.claims if row.verdict != MISSING}
    cells = {(cell.run, cell.cell): cell for cell in own.cells}
    pages = {to.resolve(): None, out.resolve(): found.record.scale}
    for folder, scale in reversed(pages.items()):
        kept = _read(folder, rows, scale)
        rows |= {row.claim: row for row in kept.claims}
        cells = {(cell.run, cell.cell): cell for cell in kept.cells} | cells
    rows = {row.claim: row for row in own.claims} | rows
    tested = [row for row in rows.values() if not math.isnan(row.p)]
    corrected = holm([row.p for row in tested])
    rows |= {row.claim: replace(row, p_holm=p) for row, p in zip(tested, corrected, strict=True)}
    ordered = sorted(rows.values(), key=lambda row: (ORDER.index(row.verdict), row.claim))
    return PageRows(tuple(ordered), tuple(cells.values()))


def _rows(found: Findings) -> PageRows:
    """Return the rows of an atlas alone, without Holm's correction."""
    run, claims = _run(found), []
    for name, one in found.verdicts().items():
        recorded = found.record.claims[name]
        claim, terms = recorded.claim, _terms(found, recorded.claim)
        row: dict[str, Any] = {key: getattr(one, key) for key in OF_DECISION}
        row |= {key: getattr(claim, key) for key in OF_CLAIM} | {"claim": name, "terms": terms}
        row |= {"predicted": claim.prediction(), "measured": _measured(found, claim, terms)}
        row |= {"recorded": recorded.at, "recorded_before": recorded.is_before}
        row |= {"power": _power(claim, one), "scale": found.record.scale, "run": run}
        claims.append(ClaimRow(**row, p_holm=math.nan))
    return PageRows(tuple(claims), tuple(_cells(found, run)))


def _run(found: Findings) -> str:
    """Return when, where and on what the cells of an atlas were trained, and how much it took."""
    record, cells = found.record, {run["cell"] for run in found.runs}
    flops, seconds = (sum(run[key] for run in found.runs) for key in ("flops", "seconds"))
    text = ", ".join(Path(name).name for name in record.text)
    return (
        f"{record.where}: {text}, {record.scale:g} times the budgets that are shipped; "
        f"{len(found.runs)} trainings of {len(cells)} cell{'s' * (len(cells) > 1)}, "
        f"{power(flops)} FLOPs, {duration(seconds)}"
    )


def _terms(found: Findings, claim: Claim) -> tuple[TermRow, ...]:
    along = list((claim.rises or claim.falls).values())
    rows = []
    for n, (weight, term) in enumerate(claim.weighted):
        values = found.values(term)
        mean = sum(values) / len(values) if values else math.nan
        half = interval(values).half_width if len(values) > 1 else math.nan
        rows.append(TermRow(str(term), term.cell, along[n] if along else weight, mean, half))
    return tuple(rows)


def _measured(found: Findings, claim: Claim, terms: Iterable[TermRow]) -> str:
    """Return the mean of each term over its seeds, with its interval."""
    return ", ".join(
        f"{row.label} {at_most(figure(row.mean), found.is_bound(term))}"
        + (f" ± {figure(row.half)}" if row.half > 0 else "")
        for row, (_, term) in zip(terms, claim.weighted, strict=True)
    )


def _power(claim: Claim, one: Decision) -> str:
    """Return what could show a claim, in words."""
    if one.bounds:
        return f"exact losses; of {', '.join(one.bounds)} only upper bounds are known"
    if one.not_begun:
        return f"{'; '.join(one.not_begun)}: a larger budget"
    if one.verdict == MISSING:
        return f"two seeds or more of: {', '.join(one.missing)}"
    far = f"a factor of {one.shows:.3f}" if claim.is_factor else f"{figure(one.shows)}"
    seeds = "more than 100 seeds" if one.needs is None else f"{one.needs} seeds"
    return f"{one.seeds} seeds show {far} from {claim.least:g}; {seeds} would show this one"


def _cells(found: Findings, run: str) -> Iterable[CellRow]:
    """Return the cells that were trained."""
    for name, cell in found.cells.items():
        runs = [one for one in found.runs if one["cell"] == name]
        if runs:
            yield CellRow(
                cell=name,
                recipe=Path(cell["recipe"]).stem,
                parameters=runs[0]["parameters"],
                tokens=runs[0]["tokens"],
                flops=runs[0]["flops"],
                seeds=len(runs),
                loss=_mean(one["heldout_loss"] for one in runs),
                bits_per_byte=_mean(one["bits_per_byte"] for one in runs),
                is_bound=any(one.get("is_bound") for one in runs),
                run=run,
                unigram=_mean(one.get("unigram") for one in runs),
                epochs=_mean(one.get("epochs") for one in runs),
            )


def _mean(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else math.nan


def figure(value: float) -> str:
    """Return a number of a claim or a cell; a dash for nan."""
    if math.isnan(value):
        return "–"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"


def _csv(kind: type, rows: Iterable[Any]) -> str:
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    names = [field.name for field in fields(kind)]
    lines.writerow(names)
    lines.writerows([_written(getattr(row, name)) for name in names] for row in rows)
    return text.getvalue()


def _written(value: Any) -> Any:
    """Return a value as CSV has it: empty for nan and None, JSON for terms."""
    if isinstance(value, tuple):
        return stored.to_json(list(map(asdict, value)))
    return "" if value is None or value != value else value


def _terms_of(text: str) -> tuple[TermRow, ...]:
    terms: list[dict[str, Any]] = json.loads(text)
    unknown: dict[str, Any] = {"mean": math.nan, "half": math.nan}
    return tuple(
        TermRow(**unknown | {key: part for key, part in one.items() if part is not None})
        for one in terms
    )


PARSE: Mapping[str, Callable[[str], Any]] = {  # by the type of a field
    "str": str,
    "int": int,
    "int | None": lambda text: int(text) if text else None,
    "float": lambda text: float(text) if text else math.nan,
    "bool": {"True": True, "False": False}.__getitem__,
    "tuple[TermRow, ...]": _terms_of,
}


def _read(folder: Path, known: Collection[str], scale: float | None) -> PageRows:
    """Return the verdicts of a page on other claims than the known, and the cells that gave them.

    Args:
        folder: that of the page; without one, there are none.
        known: names of claims that are not read.
        scale: that of the verdicts to keep; None for all.

    Raises:
        UserError: the page was not written by this version.
    """
    lines = [line for line in _lines(folder / CLAIMS) if line.get("claim") not in known]
    rows = [_parsed(ClaimRow, line, folder / CLAIMS) for line in lines]
    kept = [r for r in rows if r.verdict != MISSING and scale in (None, r.scale)]
    named = {(row.run, term.cell) for row in kept for term in row.terms}
    lines = _lines(folder / CELLS) if kept else []
    cells = [_parsed(CellRow, line, folder / CELLS) for line in lines]
    return PageRows(tuple(kept), tuple(cell for cell in cells if (cell.run, cell.cell) in named))


def _lines(file: Path) -> list[dict[str, str]]:
    if not file.is_file():
        return []
    return list(csv.DictReader(io.StringIO(atomic.read_bytes(file).decode("utf-8", "replace"))))


def _parsed(kind: type, line: Mapping[str, str], file: Path) -> Any:
    known = [one for one in fields(kind) if one.name in line or one.default is NO_DEFAULT]
    try:
        return kind(**{one.name: PARSE[str(one.type)](line[one.name]) for one in known})
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{file}: its verdicts cannot be kept, since this version did not write it; move it "
            "away, or write to another folder"
        ) from error
