"""What is claimed and what was found: `claims.json`, written before training, and the results.

A prediction is recorded before the cells that decide it are trained. One that is added or changed
afterwards is marked, since it may have been made to fit.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from foreword.atlas.merged import Atlas
from foreword.atlas.verdict import MISSING, Decision, verdict
from foreword.comparison.claim import Claim, ClaimTerm
from foreword.comparison.margins import PRETRAINED
from foreword.comparison.results import LOSSES, NUMBERS, TuningScore, values_of
from foreword.comparison.run import RESULTS
from foreword.disk import stored
from foreword.errors import UserError
from foreword.runs.provenance import make_provenance
from foreword.scaling.runs import has_begun
from foreword.settings import config
from foreword.tuning.tasks._contract import BOUND

FILE = "claims.json"
UNTRAINED = ("reach",)  # metrics of what a network can do, whatever it has learned
READ_OFTEN = 4.0  # epochs, beyond which a high loss may be one of too many


@dataclass(frozen=True)
class Recorded:
    """A claim as it was recorded.

    Attributes:
        claim: the claim, with the names of the atlas.
        at: when its prediction was recorded, UTC.
        is_before: whether none of its cells was trained then.
    """

    claim: Claim
    at: str
    is_before: bool


@dataclass(frozen=True)
class Record:
    """The claims of a folder, and how they were decided.

    Attributes:
        scale: by how much budgets are multiplied.
        hours: the time that the scale was chosen for; None for a given one.
        text: what the cells are trained on.
        claims: the claims by name.
        where: when and where the cells were trained last, and by which version.
        left_out: why others are not decided, by name.
        others: claims of earlier runs in the folder, which the last one did not name.
    """

    scale: float
    hours: float | None
    text: tuple[str, ...]
    claims: Mapping[str, Recorded] = field(default_factory=dict)
    where: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Recorded] = field(default_factory=dict)


@dataclass(frozen=True)
class Findings:
    """The results of an atlas, from its folder alone.

    Attributes:
        record: the claims.
        runs: the results of pretrainings.
        scores: the scores of fine-tunings, probes and baselines.
        metrics: the metric of each task and probe.
        cells: the recipe and the budget of each cell.
    """

    record: Record
    runs: tuple[Mapping[str, Any], ...]
    scores: tuple[TuningScore, ...]
    metrics: Mapping[str, str]
    cells: Mapping[str, Mapping[str, Any]]

    def values(self, term: ClaimTerm) -> list[float]:
        """Return the values of a term, one for each seed."""
        if term.measure in NUMBERS:
            known = (run[term.measure] for run in self.runs if run["cell"] == term.cell)
            return [float(value) for value in known if value is not None]
        of = term.cell, term.measure, term.start
        return list(values_of(self.scores, of, self.metrics.get(term.measure, "")).values())

    def is_bound(self, term: ClaimTerm) -> bool:
        """Return whether the values of a term are upper bounds, of losses or of answers'."""
        runs = [run for run in self.runs if run["cell"] == term.cell]
        is_loss = term.measure in LOSSES or self.metrics.get(term.measure) == BOUND
        return is_loss and any(run.get("is_bound") for run in runs)

    def not_begun(self, term: ClaimTerm) -> str:
        """Return in words that the cell of a term has not begun, where its quality is measured.

        "" if it has, if no loss of token frequencies compares with its own, or if it has read its
        text so often that its loss may have risen above them again.
        """
        own = [run for run in self.runs if run["cell"] == term.cell]
        runs = [run for run in own if None not in (run.get("unigram"), run.get("token_loss"))]
        is_quality = term.measure not in NUMBERS or term.measure in LOSSES
        is_quality &= self.metrics.get(term.measure) not in UNTRAINED
        if not (runs and is_quality and term.start == PRETRAINED):
            return ""
        loss, frequencies = (
            np.mean([run[key] for run in runs]) for key in ("token_loss", "unigram")
        )
        if has_begun(loss, frequencies) or max(run["epochs"] or 0 for run in runs) > READ_OFTEN:
            return ""
        return f"{term.cell} has not begun ({loss:.2f} nats, token frequencies {frequencies:.2f})"

    def verdicts(self) -> dict[str, Decision]:
        """Return the verdict on each claim; none on one that sets bounds against exact losses."""
        decisions = dict[str, Decision]()
        for name, one in self.record.claims.items():
            terms = [term for _, term in one.claim.weighted]
            bounds = tuple(dict.fromkeys(str(term) for term in terms if self.is_bound(term)))
            if bounds and not all(map(self.is_bound, terms)):
                decisions[name] = Decision(MISSING, bounds=bounds)
            else:
                not_begun = dict.fromkeys(filter(None, map(self.not_begun, terms)))
                decisions[name] = verdict(one.claim, self.values, tuple(not_begun))
        return decisions


def commit(folder: Path, atlas: Atlas, record: Record, trained: Collection[str]) -> None:
    """Record claims, before their cells are trained.

    Args:
        folder: the folder of the atlas.
        atlas: the claims.
        record: what is known besides; its claims are not read.
        trained: the cells of which a seed was trained already.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    before = read(folder) if (folder / FILE).is_file() else record
    earlier = {**before.others, **before.claims}
    now, claims = datetime.now(UTC).isoformat(timespec="seconds"), dict[str, Recorded]()
    for name, claim in atlas.claims.items():
        is_new = not any(term.cell in trained for _, term in claim.weighted)
        known = earlier.get(name)
        if known is not None and _prediction(known.claim) == _prediction(claim):
            claims[name] = replace(known, claim=claim)
        else:
            claims[name] = Recorded(claim, now, is_new)
    others = {name: one for name, one in earlier.items() if name not in claims}
    parts = {"claims": _tables(claims), "others": _tables(others)}
    record = replace(record, claims={}, where=_where())
    stored.write(folder / FILE, asdict(record) | parts)


def read(folder: Path) -> Record:
    """Return the claims of a folder.

    Raises:
        UserError: it holds none, or the file is damaged.
    """
    file = folder / FILE
    if not file.is_file():
        raise UserError(f"{folder}: has no {FILE}; 'foreword claims run' writes it")
    table = stored.read(file)
    claims, others = (
        {
            name: Recorded(config.build(Claim, one["claim"]), one["at"], one["is_before"])
            for name, one in table[part].items()
        }
        for part in ("claims", "others")
    )
    given = table["scale"], table["hours"], tuple(table["text"])
    return Record(*given, claims, table.get("where", ""), table["left_out"], others)


def findings(folder: Path) -> Findings:
    """Return the results of an atlas; none of cells that are not finished.

    Raises:
        UserError: as `read`.
    """
    record = read(folder)
    table = stored.read(folder / RESULTS) if (folder / RESULTS).is_file() else {}
    return Findings(
        record,
        tuple(table.get("runs", ())),
        tuple(_score(one) for one in table.get("scores", ())),
        table.get("metrics", {}),
        {
            cell.get("label") or cell["recipe"]: cell
            for cell in table.get("grid", {}).get("cells", ())
        },
    )


def _where() -> str:
    """Return the day, this machine and this version of Foreword, in words."""
    made = make_provenance()
    machine, commit = made["machine"], made["commit"]
    processor = machine.get("gpu", machine["processor"])
    version = made["foreword"] + (f" at {commit}" if commit else "")
    return f"{made['created'][:10]}, {processor}, {machine['cores']} cores, Foreword {version}"


def _tables(claims: Mapping[str, Recorded]) -> dict[str, Any]:
    return {
        name: {"claim": config.to_table(one.claim), "at": one.at, "is_before": one.is_before}
        for name, one in claims.items()
    }


def _score(table: Mapping[str, Any]) -> TuningScore:
    """Return a score that was saved; null is one that is not a number."""
    known = table["scores"].items()
    scores = {metric: math.nan if value is None else value for metric, value in known}
    return TuningScore(**{**table, "scores": scores})


def _prediction(claim: Claim) -> Claim:
    """Return what of a claim is predicted, without its words."""
    return replace(claim, sentence="", source="")
