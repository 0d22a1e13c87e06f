"""The report of a run: one self-contained page without network or other files.

All text from a run is escaped, and the page runs no script but its own, so it is safe to open
whatever the model wrote. Without scripts it has tables in place of its charts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from foreword.disk import atomic
from foreword.disk.credentials import masked
from foreword.formatting import at_most, duration, figure, power, quantity, unknown_share_note
from foreword.reports import folder as folders
from foreword.reports import fragments, tuning
from foreword.reports.charts import Chart, Line, smoothed
from foreword.reports.evaluations import evaluation_section
from foreword.reports.folder import RunFolder, number
from foreword.reports.heldout import HeldOutLoss, held_out_loss
from foreword.reports.sources import source_section
from foreword.reports.tables import key_value_table
from foreword.serving import bundle
from foreword.train import log
from foreword.version import __version__

LARGE = 300  # pixels, the height of a large chart


def write_page(run: str | Path, out: str | Path | None = None) -> Path:
    """Write a run's report.

    Args:
        out: path of the page; default: `report.html` in the run folder.

    Returns:
        The path of the page.

    Raises:
        UserError: it is not a run folder, or the page cannot be written.
    """
    content = folders.read(run)
    path = Path(out) if out is not None else content.path / "report.html"
    atomic.require_writable(path, is_folder=False)
    atomic.write_text(path, page(title(content), body(content)))
    return path


def page(heading: str, content: str) -> str:
    """Return a whole page around `content`.

    Args:
        heading: plain text.
        content: HTML.
    """
    text = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(heading)}</title>\n{bundle.head(['style.css'], 'report.js')}</head>\n"
        f"<body>\n<main>\n{content}\n"
        f"<footer>Written by Foreword {escape(__version__)}</footer>\n"
        "</main>\n</body>\n</html>\n"
    )
    return masked(text).encode("utf-8", "replace").decode("utf-8")  # lone surrogates have no UTF-8


def title(run: RunFolder) -> str:
    """Return the recipe's description up to the colon, or else the folder's name."""
    return str(run.recipe.get("description") or "").partition(":")[0] or run.path.resolve().name


def body(run: RunFolder) -> str:
    """Return the content of the page, section by section; empty sections are left out."""
    loss = held_out_loss(run)
    sections = [
        f"<h1>{escape(title(run))}</h1>",
        f'<p class="lead">{escape(sentence(run))}</p>',
        *(f'<p class="meaning">{escape(text)}</p>' for text in meanings(run, loss)),
        tiles(run, loss),
        fragments.note(loss.note) if loss is not None else "",
        unknown_note(run),
        curves(run),
        source_section(run),
        probe_curves(run),
        "".join(
            evaluation_section(
                evaluation, says_meaning=loss is None or evaluation is not loss.evaluation
            )
            for evaluation in run.evaluations
        ),
        *(evaluation_section(evaluation) for evaluation in run.of_tuned),
        samples(run),
        fragments.folded("Recipe", f"<pre>{escape(run.recipe_text.strip())}</pre>"),
        fragments.folded("Where it comes from", key_value_table(run.provenance)),
        fragments.note(f"Could not be read: {', '.join(run.unread)}." if run.unread else ""),
    ]
    return "\n".join(section for section in sections if section)


def sentence(run: RunFolder) -> str:
    """Return a summary of the run in one or two sentences."""
    # What the model is.
    rest = str(run.recipe.get("description") or "").partition(":")[2].strip()
    kinds = {part: str(_table(run.recipe, part).get("kind", "?")) for part in ("layout", "model")}
    model = rest or f"{kinds['model']} with layout {kinds['layout']}".replace("_", "-")
    parameters = number(run.provenance, "parameters")
    size = f", {quantity(parameters)} parameters" if parameters == parameters else ""
    text = f"{model[:1].upper()}{model[1:]}{size}."
    # How it was trained.
    if not run.train:
        return f"{text} Nothing has been measured yet."
    last = run.train[-1]
    if trains_offline(run):
        return (
            f"{text} Trained offline on {quantity(number(last, 'tokens'))} tokens in "
            f"{duration(number(last, 'seconds'))}."
        )
    text += (
        f" Trained for {quantity(number(last, 'step'))} steps on "
        f"{quantity(number(last, 'tokens'))} tokens in {duration(number(last, 'seconds'))}."
    )
    vectors = _table(run.provenance, "word_vectors")
    if not vectors:
        return text
    source = f"read from {Path(str(vectors.get('file'))).name}"
    if "tokens" in vectors:
        source = f"counted from {quantity(number(vectors, 'tokens'))} tokens"
    return (
        f"{text} Its embeddings began as word vectors, {source} in "
        f"{duration(number(vectors, 'seconds'))} of that time."
    )


def meanings(run: RunFolder, loss: HeldOutLoss | None) -> list[str]:
    """Return what the most telling figures mean: the held-out loss and what pretraining adds."""
    sentences = [loss.meaning] if loss is not None and loss.meaning else []
    sentences += [
        f"{evaluation.name}: {text}"
        for evaluation in run.evaluations
        if (text := tuning.worth(evaluation))
    ]
    return sentences


def trains_offline(run: RunFolder) -> bool:
    """Return whether the model was trained offline, without steps."""
    # Older records of count-based models lack the mark, but have no learning rate either.
    return bool(run.train) and bool(run.train[-1].get("offline", "lr" not in run.train[-1]))


def tiles(run: RunFolder, loss: HeldOutLoss | None) -> str:
    """Return the key numbers of a run as tiles."""
    pairs: list[tuple[str, str]] = []
    if loss is not None:
        pairs += [
            ("held-out loss, nats", at_most(figure(loss.loss), loss.is_bound)),
            ("perplexity", at_most(figure(loss.perplexity), loss.is_bound)),
            ("bits per byte", at_most(figure(loss.bits_per_byte), loss.is_bound)),
            *((f"held-out {_spaced(name)}", figure(v)) for name, v in loss.components.items()),
        ]
    if run.train:
        last = run.train[-1]
        rates = [number(r, "tokens_per_second") for r in run.train]
        pairs += [
            ("training loss, nats", figure(smoothed([number(r, "loss") for r in run.train])[-1])),
            ("tokens read", quantity(number(last, "tokens"))),
            ("time", duration(number(last, "seconds"))),
            ("tokens per second", quantity(_median(rates))),
            ("floating-point operations", power(number(last, "flops"))),
            (
                "of the machine's matrix rate",
                _median_percent([number(r, _MATMUL_SHARE) for r in run.train]),
            ),
            ("steps skipped", quantity(number(last, "skipped") or float("nan"))),
        ]
    if run.probes:
        last = run.probes[-1]
        pairs += [(_spaced(name), figure(number(last, name))) for name in log.components(last)]
    return fragments.tiles(pair for pair in pairs if pair[1] != "–")


def unknown_note(run: RunFolder) -> str:
    """Return a note on the key numbers if some of the held-out tokens are unknown."""
    counts = _table(_table(_table(run.provenance, "data"), "counts"), "heldout")
    share = number(counts, "unknown") / (number(counts, "tokens") or math.nan)
    if not run.heldout or not share > 0:
        return ""
    return fragments.note(f"Held-out text: {unknown_share_note(share)}.")


_MATMUL_SHARE = "share_of_matmul"


def curves(run: RunFolder) -> str:
    """Return the curves of losses, learning rate and speed; "" for offline training."""
    if trains_offline(run):
        return ""
    steps = [number(r, "step") for r in run.train]
    lines: list[Line] = []
    if run.train:
        loss = [number(r, "loss") for r in run.train]
        lines += [
            Line("", steps, loss, "accent", "faint"),
            Line("training", steps, smoothed(loss), "accent"),
        ]
    if run.heldout:
        heldout_steps = [number(r, "step") for r in run.heldout]
        heldout = [number(r, "loss") for r in run.heldout]
        lines.append(Line("held-out sample", heldout_steps, heldout, "second", "dots"))
    if not lines:
        return ""
    marks = stage_marks(run)
    large = Chart(
        "Loss, nats per prediction",
        lines,
        "step",
        marks=[(step, f"stage {n}") for n, (step, _) in marks.items()],
        levels=_baseline_levels(run),
        height=LARGE,
    )
    parts = ["<h2>Learning</h2>", large.html()]
    parts += [
        fragments.note(f"Stage {n}, from step {step:,}: {text}.")
        for n, (step, text) in marks.items()
    ]
    # Small figures below: learning rate, speed, loss components.
    small = []
    for key, caption in (("lr", "Learning rate"), ("tokens_per_second", "Tokens per second")):
        values = [number(r, key) for r in run.train]
        if any(map(math.isfinite, values)):
            line = [Line("", steps, values)]
            if key != "lr":  # speed is noisy, a schedule is not
                line = [Line("", steps, values, style="faint"), Line("", steps, smoothed(values))]
            small.append(Chart(caption, line, "step").html())
    small += [
        _component_figure(run, name) for name in log.components(run.train[-1] if run.train else {})
    ]
    return "\n".join([*parts, fragments.side_by_side(small)])


def stage_marks(run: RunFolder) -> dict[int, tuple[int, str]]:
    """Return the first step of each stage, and what changed at it; none of a single stage."""
    marks: dict[int, tuple[int, str]] = {}
    for record in run.stages:
        if number(record, "stages") > 1:
            marks.setdefault(int(record["stage"]), (int(record["step"]), log.in_words(record)))
    return marks


def probe_curves(run: RunFolder) -> str:
    """Return the curve of each probe over training; "" for a single record, or none."""
    if len(run.probes) < 2:
        return ""
    steps = [number(r, "step") for r in run.probes]
    figures = []
    for name in dict.fromkeys(name for record in run.probes for name in log.components(record)):
        values = [number(r, name) for r in run.probes]
        line = Line("", steps, values, "second", "dots")
        figures.append(Chart(_capital(_spaced(name)), [line], "step").html())
    return f"<h2>Probes while training</h2>\n{fragments.side_by_side(figures)}"


def _component_figure(run: RunFolder, name: str) -> str:
    """Return the figure of one loss component, or of a metric beside the loss."""
    values = [number(r, name) for r in run.train]
    steps = [number(r, "step") for r in run.train]
    lines = [Line("", steps, values, style="faint"), Line("training", steps, smoothed(values))]
    heldout = [number(r, name) for r in run.heldout]
    if any(map(math.isfinite, heldout)):
        heldout_steps = [number(r, "step") for r in run.heldout]
        lines.append(Line("held-out sample", heldout_steps, heldout, "second", "dots"))
    return Chart(_spaced(name).capitalize(), lines, "step").html()


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _baseline_levels(run: RunFolder) -> list[tuple[float, str]]:
    """Return the losses of the count-based baselines as levels, if the loss is over all tokens."""
    for evaluation in run.evaluations:
        rows = [row for row in evaluation.rows if str(row.get("what", "")).endswith(" counts")]
        if rows and isinstance(evaluation.rows[0].get("bits_per_byte"), float):
            losses = [(number(row, "loss"), str(row["what"])) for row in rows]
            return [(loss, name) for loss, name in losses if loss == loss]
    return []


def samples(run: RunFolder) -> str:
    """Return the samples of each evaluation, the latest first and open."""
    if not run.samples:
        return ""
    parts = ["<h2>What it says</h2>"]
    for n, record in enumerate(reversed(run.samples)):
        items = "".join(_sample(sample) for sample in record["samples"] if isinstance(sample, dict))
        step = f"at step {quantity(number(record, 'step'))}"
        parts.append(fragments.folded(step, items, is_open=n == 0))
    return "\n".join(parts)


def _sample(sample: Mapping[str, Any]) -> str:
    prompt, text = (escape(str(sample.get(key) or "")) for key in ("prompt", "text"))
    # A continuation follows its prompt on the line; a filled text or an answer goes below it.
    is_above = "«" in text or "&lt;extra_id_" in prompt
    marked = re.sub("«([^»]*)»", r"<mark>\1</mark>", text)
    css_class = "from above" if is_above else "from"
    return f'<div class="sample"><span class="{css_class}">{prompt}</span>{marked}</div>'


def _table(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = values.get(key)
    return value if isinstance(value, Mapping) else {"kind": value} if value else {}


def _median(values: Sequence[float]) -> float:
    known = sorted(value for value in values if value == value)
    return known[len(known) // 2] if known else float("nan")


def _median_percent(values: Sequence[float]) -> str:
    median = _median(values)
    return f"{100 * median:.0f} %" if median == median else "–"
