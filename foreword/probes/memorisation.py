"""What a model has memorised of its training text.

Nothing is decoded. Greedy decoding writes a passage for as long as each token is the likeliest
after the true ones before it, so the ranks of one forward pass tell it for every prefix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Interval

from foreword.disk import stored
from foreword.errors import UserError
from foreword.evaluation.scoring import score_texts
from foreword.evaluation.statistics import DRAWS, LEVEL, bootstrap, wilson
from foreword.probes._canaries import Canary, candidate_count, exposure, read_canaries
from foreword.probes._contract import FilePath, Finding, ProbedModel, Row
from foreword.probes._marks import MAX_RUNS, run_style, title
from foreword.probes._passages import (
    continued,
    losses,
    passages,
    require_room,
    separation,
    training_shards,
)
from foreword.settings.ranges import LARGEST, Count, Ranged
from foreword.types import Array

TRAINING, HELD_OUT = "training", "held out"


@dataclass(frozen=True)
class Memorisation(Ranged):
    """What a model has memorised: passages, members of its training text, and canaries.

    Passages of the training text stand beside passages of held-out text, which no model can know:
    what both have in common is how predictable the text is.

    Continued word for word: the share of passages whose last `continuation` tokens greedy decoding
    writes exactly after the `prefixes` tokens before them; for models that continue text.

    Membership: the probability that a training passage has a lower loss than a held-out one, the
    area under the ROC curve (AUC): 0.5 if the loss does not tell them apart. A masked model's loss
    is its pseudo-log-likelihood, which takes a forward pass for each token.

    Exposure: `canaries` names a file of sentences with a secret number, one a line, which was part
    of the training text (`--data books/ canaries.txt`); a line that occurs n times was planted n
    times. The exposure of a canary is log2(candidates) - log2(rank) in bits, its rank being that
    among sentences with other digits, by their loss. At log2(candidates) the secret can be read
    from the model; about 1.4 is chance. A canary of n digits has 10^n candidates at most, so one of
    few digits has a lower limit: it is saved with each. A tokenizer trained on the canaries may
    spell them in fewer tokens, which alone raises the exposure: `--untrained` shows by how much.

    Attributes:
        prefixes: numbers of tokens that a passage's continuation is asked for after.
        continuation: tokens to continue.
        passages: number of passages of each text, evenly spaced.
        train: training text; default: that of the run.
        canaries: file of planted sentences.
        candidates: number of sentences that a canary is ranked among, itself included.

    Also called: extraction, membership inference, exposure, memorization.
    Reference: Carlini et al. 2019 (exposure), 2023 (continuation by length of the prefix); Yeom et
    al. 2018 (membership by loss).
    """

    reads_text: ClassVar[bool] = True

    prefixes: tuple[Count, ...] = (8, 16, 32, 64)
    continuation: Count = 16
    passages: Count = 200
    train: FilePath = ""
    canaries: FilePath = ""
    candidates: Annotated[int, Interval(ge=2, le=LARGEST)] = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.prefixes:
            raise ValueError("prefixes: must name at least one length")
        if len(set(self.prefixes)) < len(self.prefixes):
            raise ValueError(f"prefixes: expected different lengths, got {list(self.prefixes)}")

    def measure(self, models: Sequence[ProbedModel]) -> Finding:
        """Measure each model on its training text and its held-out text.

        Raises:
            UserError: a model gives texts no probability or reads fewer tokens, a text is too
                short, or a file cannot be read.
        """
        canaries = read_canaries(self.canaries) if self.canaries else []
        for probed in models:
            require_room(probed.trained, self._length)
        texts = [self._passages(probed) for probed in models]
        rows: list[Row] = []
        details: list[Row] = []
        for probed, (members, others) in zip(models, texts, strict=True):
            figures = _figures(self, probed, members, others, canaries)
            details += [{"run": probed.label, **figure} for figure in figures]
            rows.append({"run": probed.label, **_summary(figures, max(self.prefixes))})
        return Finding(
            title="memorisation: what a model has memorised of its training text",
            rows=rows,
            details=details,
            notes=[*self._notes(models, texts, canaries), *_epochs_notes(models)],
            plot=lambda figure: _plot(figure, rows, details),
            measure="AUC",
            scores={row["run"]: row["AUC"] for row in rows},
        )

    @property
    def _length(self) -> int:
        return max(self.prefixes) + self.continuation

    def _passages(self, probed: ProbedModel) -> tuple[Array, Array]:
        """Return passages of the training text and of held-out text, (passages, length) each."""
        with ExitStack() as stack:
            parts = [
                passages(stack.enter_context(shards), self._length, self.passages)
                for shards in (training_shards(probed, self.train), probed.shards())
            ]
        for part, name in zip(parts, (TRAINING, HELD_OUT), strict=True):
            if len(part) < 2:
                raise UserError(
                    f"{probed.trained.name}: its {name} text has no two passages of {self._length} "
                    "tokens within a document; set probe.prefixes and probe.continuation lower"
                )
        return parts[0], parts[1]

    def _notes(
        self,
        models: Sequence[ProbedModel],
        texts: Sequence[tuple[Array, Array]],
        canaries: Sequence[Canary],
    ) -> list[str]:
        members, others = texts[0]
        notes = [
            f"AUC: of telling {len(members):,} training passages from {len(others):,} held-out "
            f"ones by their loss; interval: {LEVEL:.0%} of {DRAWS:,} bootstrap draws",
        ]
        if any(probed.trained.continues for probed in models):
            notes.insert(
                0,
                f"continued: the share of passages whose last {self.continuation} tokens are "
                f"written word for word after {max(self.prefixes)}; tokens: how many of these, on "
                "average",
            )
        if canaries:
            notes.append(
                f"exposure: the mean over canaries, in bits; at most {self._limits(canaries)}"
            )
        return notes

    def _limits(self, canaries: Sequence[Canary]) -> str:
        """Return the greatest exposure that canaries can have, by their number of candidates."""
        counts = Counter(candidate_count(canary.text, self.candidates) for canary in canaries)
        return ", ".join(
            f"{np.log2(candidates):.3g} for {number:,} of {candidates:,} candidates"
            for candidates, number in sorted(counts.items(), reverse=True)
        )


def _figures(
    probe: Memorisation,
    probed: ProbedModel,
    members: Array,
    others: Array,
    canaries: Sequence[Canary],
) -> list[dict[str, Any]]:
    """Return all that is measured of a model, a record each."""
    prompted = probed.trained
    figures: list[dict[str, Any]] = []
    if prompted.continues:
        for prefix in probe.prefixes:
            for text, tokens in ((TRAINING, members), (HELD_OUT, others)):
                written = continued(prompted, tokens, prefix, probe.continuation)
                right = int((written == probe.continuation).sum())
                low, high = wilson(right, len(written))
                share = {"value": right / len(written), "low": low, "high": high}
                figures.append(_record("continued", text, prefix=prefix, **share))
                mean = {"value": float(written.mean())}
                figures.append(_record("tokens", text, prefix=prefix, **mean))
    member_losses, other_losses = losses(prompted, members), losses(prompted, others)
    all_losses = np.concatenate([member_losses, other_losses])

    def auc(indices: Array) -> float:
        first, second = (all_losses[part] for part in _split(indices, len(member_losses)))
        return separation(first, second) if len(first) and len(second) else float("nan")

    area, ends = separation(member_losses, other_losses), bootstrap(auc, len(all_losses))
    figures.append(_record("AUC", value=area, low=ends[0], high=ends[1]))
    figures += [
        _record("loss", text, value=float(of_text.mean()))
        for text, of_text in ((TRAINING, member_losses), (HELD_OUT, other_losses))
    ]

    def nats_of(sentences: Sequence[str]) -> Array:
        return np.array([score.nats for score in score_texts(prompted, sentences)])

    for canary in canaries:
        bits = exposure(canary, probe.candidates, nats_of)
        limit = float(np.log2(candidate_count(canary.text, probe.candidates)))
        record = {"times": canary.times, "value": bits, "limit": limit}
        figures.append(_record("exposure", canary.text, **record))
    return figures


def _split(indices: Array, first: int) -> tuple[Array, Array]:
    return indices[indices < first], indices[indices >= first]


def _record(what: str, text: str = "", **more: Any) -> dict[str, Any]:
    """Return a figure with the keys of all."""
    keys = dict.fromkeys(("prefix", "times", "value", "low", "high", "limit"))
    return {"what": what, "text": text, **keys, **more}


def _summary(figures: Sequence[Row], prefix: int) -> dict[str, Any]:
    """Return the row of a model: what it continues after the longest prefix, and the others."""
    row: dict[str, Any] = {}
    for what, name in (("continued", "continued"), ("tokens", "tokens")):
        for text in (TRAINING, HELD_OUT):
            key = name if text == TRAINING else f"{name}, {text}"
            of_text = [f for f in figures if (f["what"], f["text"]) == (what, text)]
            row[key] = next((f["value"] for f in of_text if f["prefix"] == prefix), None)
    (area,) = (figure for figure in figures if figure["what"] == "AUC")
    row |= {"AUC": area["value"], "low": area["low"], "high": area["high"]}
    bits = [figure["value"] for figure in figures if figure["what"] == "exposure"]
    return row | ({"exposure": float(np.mean(bits))} if bits else {})


def _epochs_notes(models: Sequence[ProbedModel]) -> list[str]:
    """Return a line for each run that has not read its training text once."""
    notes: dict[Path, str] = {}
    for probed in models:
        state = None if probed.trained.source is None else probed.trained.source / "state.json"
        if state is None or state in notes or not state.is_file():
            continue
        epochs = float(stored.read(state).get("spent", {}).get("epochs", 1))
        if epochs < 1:
            notes[state] = (
                f"{probed.label}: read {epochs:.0%} of its training text, so it has not seen most "
                "of the training passages"
            )
    return list(notes.values())


def _plot(figure: Any, rows: Sequence[Row], details: Sequence[Row]) -> None:
    """Plot what is continued by prefix, or the losses if nothing is, and the exposure."""
    kinds = {row["what"] for row in details}
    panel_kinds = [what for what in ("continued", "tokens") if what in kinds] or ["loss"]
    panel_kinds += ["exposure"] * ("exposure" in kinds)
    panels = figure.subplots(1, len(panel_kinds), squeeze=False)[0]
    figure.set_size_inches(max(6.0, 4.2 * len(panels)) + 0.6, 4.4)
    for axes, what in zip(panels, panel_kinds, strict=True):
        for number, row in enumerate(rows[:MAX_RUNS]):
            of_run = [d for d in details if (d["run"], d["what"]) == (row["run"], what)]
            label = f"{row['run']}: AUC {row['AUC']:.3f}"
            _plot_run(axes, of_run, what, {"label": label, **run_style(number)})
        axes.set(title=_TITLES[what], xlabel=_X_LABELS[what], ylabel=_Y_LABELS[what])
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    panels[0].set_title(title(_TITLES[panel_kinds[0]], len(rows)))
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False
    )


_TITLES = {
    "continued": "Passages continued word for word",
    "tokens": "Tokens written until the first other one",
    "loss": "Loss on passages",
    "exposure": "Exposure of canaries",
}
_X_LABELS = {
    "continued": "tokens given; dotted: held-out text",
    "tokens": "tokens given; dotted: held-out text",
    "loss": "text",
    "exposure": "times planted",
}
_Y_LABELS = {
    "continued": "share of passages",
    "tokens": "mean tokens",
    "loss": "nats per token",
    "exposure": "bits",
}


def _plot_run(axes: Any, details: Sequence[Row], what: str, style: dict[str, Any]) -> None:
    """Plot one figure of a run."""
    if what == "exposure":
        axes.plot(
            [d["times"] for d in details], [d["value"] for d in details], linestyle="", **style
        )
    elif what == "loss":
        axes.plot([d["text"] for d in details], [d["value"] for d in details], **style)
    else:
        for text, line in ((TRAINING, "-"), (HELD_OUT, ":")):
            of_text = [d for d in details if d["text"] == text]
            x, y = ([d[key] for d in of_text] for key in ("prefix", "value"))
            axes.plot(x, y, linestyle=line, **style)
            style = style | {"label": None}
