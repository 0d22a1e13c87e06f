"""A run as one page that stands alone: no script, no network, nothing beside it.

All text that comes from a run is escaped: a page can be opened whatever a model was made to say.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from foreword import __version__, atomic
from foreword.formatting import cell, duration, figure, flattered, power, quantity
from foreword.report import folder as folders
from foreword.report.curves import Line, plot_curves, smoothed
from foreword.report.evaluations import evaluation_section
from foreword.report.folder import RunFolder, number
from foreword.report.style import CSS
from foreword.train import log


def write_page(run: str | Path, out: str | Path | None = None) -> Path:
    """Writes a run's report.

    Args:
        run: a run folder.
        out: the page; `report.html` in the run folder if unsaid.

    Returns:
        Where it is.

    Raises:
        UserError: it is not a run folder, or the page cannot be written.
    """
    found = folders.read(run)
    path = Path(out) if out is not None else found.path / "report.html"
    atomic.require_no_device(path)
    atomic.write_text(path, page(title(found), body(found)))
    return path


def page(heading: str, content: str) -> str:
    """A whole page around `content`, which is HTML already.

    Args:
        heading: plain text.
        content: HTML.
    """
    text = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(heading)}</title>\n<style>{CSS}</style>\n</head>\n"
        f"<body>\n<main>\n{content}\n"
        f"<footer>Written by Foreword {escape(__version__)}</footer>\n"
        "</main>\n</body>\n</html>\n"
    )
    return text.encode("utf-8", "replace").decode("utf-8")  # half a character has no UTF-8


def title(run: RunFolder) -> str:
    """What the recipe calls itself, up to the colon; else the folder's name."""
    return str(run.recipe.get("description") or "").partition(":")[0] or run.path.resolve().name


def body(run: RunFolder) -> str:
    """The page's content, section by section; those without anything to say are left out."""
    sections = [
        f"<h1>{escape(title(run))}</h1>",
        f'<p class="lead">{escape(sentence(run))}</p>',
        tiles(run),
        unknown_note(run),
        curves(run),
        "".join(evaluation_section(one) for one in run.evaluations),
        samples(run),
        _details("Recipe", f"<pre>{escape(run.recipe_text.strip())}</pre>"),
        _details("Where it comes from", key_value_table(run.provenance)),
    ]
    if run.unread:
        sections.append(f'<p class="note">Could not be read: {escape(", ".join(run.unread))}.</p>')
    return "\n".join(section for section in sections if section)


def sentence(run: RunFolder) -> str:
    """What this is, in one sentence or two."""
    rest = str(run.recipe.get("description") or "").partition(":")[2].strip()
    kinds = {part: str(_table(run.recipe, part).get("kind", "?")) for part in ("layout", "model")}
    what = rest or f"{kinds['model']} with layout {kinds['layout']}".replace("_", "-")
    parameters = number(run.provenance, "parameters")
    size = f", {quantity(parameters)} parameters" if parameters == parameters else ""
    text = f"{what[:1].upper()}{what[1:]}{size}."
    if not run.train:
        return f"{text} Nothing has been measured yet."
    last = run.train[-1]
    if trains_offline(run):
        return (
            f"{text} Fitted to {quantity(number(last, 'tokens'))} tokens in "
            f"{duration(number(last, 'seconds'))}."
        )
    return (
        f"{text} Trained for {quantity(number(last, 'step'))} steps on "
        f"{quantity(number(last, 'tokens'))} tokens in {duration(number(last, 'seconds'))}."
    )


def trains_offline(run: RunFolder) -> bool:
    """Whether the whole text was learned from at once, in no steps."""
    # A model of counts that was fitted before records said so has no learning rate.
    return bool(run.train) and bool(run.train[-1].get("fitted", "lr" not in run.train[-1]))


def tiles(run: RunFolder) -> str:
    """The key numbers."""
    pairs: list[tuple[str, str]] = []
    if run.heldout:
        best = min(run.heldout, key=lambda r: _or_infinite(number(r, "loss")))
        pairs += [
            ("held-out loss, nats", figure(number(best, "loss"))),
            ("perplexity", figure(number(best, "perplexity"))),
            ("bits per byte", figure(number(best, "bits_per_byte"))),
            *((f"held-out {_spaced(name)}", figure(v)) for name, v in log.components(best).items()),
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
    shown = [pair for pair in pairs if pair[1] != "–"]
    cells = [
        f'<div class="tile"><b>{escape(v)}</b><span>{escape(k)}</span></div>' for k, v in shown
    ]
    return f'<div class="tiles">{"".join(cells)}</div>' if cells else ""


def unknown_note(run: RunFolder) -> str:
    """What is to be said of the key numbers where some of the held-out text is unknown."""
    counts = _table(_table(_table(run.provenance, "data"), "counts"), "heldout")
    share = number(counts, "unknown") / (number(counts, "tokens") or math.nan)
    if not run.heldout or not share > 0:
        return ""
    return f'<p class="note">Held-out text: {escape(flattered(share))}.</p>'


_MATMUL_SHARE = "share_of_matmul"


def curves(run: RunFolder) -> str:
    """Training and held-out loss, learning rate, speed; nothing of what took no steps."""
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
        at = [number(r, "step") for r in run.heldout]
        lines.append(
            Line("held-out", at, [number(r, "loss") for r in run.heldout], "second", "dots")
        )
    if not lines:
        return ""
    lines += _baseline_levels(run)
    parts = ["<h2>Learning</h2>", _figure("Loss, nats per prediction", lines, is_large=True)]
    small = []
    for key, caption in (("lr", "Learning rate"), ("tokens_per_second", "Tokens per second")):
        values = [number(r, key) for r in run.train]
        if any(map(math.isfinite, values)):
            line = [Line("", steps, values)]
            if key != "lr":  # a rate is noisy, and a schedule is not
                line = [Line("", steps, values, style="faint"), Line("", steps, smoothed(values))]
            small.append(_figure(caption, line))
    small += [
        _component_figure(run, name) for name in log.components(run.train[-1] if run.train else {})
    ]
    return "\n".join([*parts, f'<div class="pair">{"".join(small)}</div>' if small else ""])


def _component_figure(run: RunFolder, name: str) -> str:
    """One term of a loss that is a sum, or a mean beside it."""
    values = [number(r, name) for r in run.train]
    steps = [number(r, "step") for r in run.train]
    lines = [Line("", steps, values, style="faint"), Line("training", steps, smoothed(values))]
    found = [number(r, name) for r in run.heldout]
    if any(map(math.isfinite, found)):
        at = [number(r, "step") for r in run.heldout]
        lines.append(Line("held-out", at, found, "second", "dots"))
    return _figure(_spaced(name).capitalize(), lines)


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _baseline_levels(run: RunFolder) -> list[Line]:
    """What counting reaches, beside a loss over all tokens that it compares with."""
    for one in run.evaluations:
        rows = [row for row in one.rows if str(row.get("what", "")).endswith(" counts")]
        if rows and isinstance(one.rows[0].get("bits_per_byte"), float):
            named = [(str(row["what"]), number(row, "loss")) for row in rows]
            return [Line(n, [], [v], "muted", "level") for n, v in named if v == v]
    return []


def samples(run: RunFolder) -> str:
    """What the model said at each evaluation, the last time first and open."""
    if not run.samples:
        return ""
    parts = ["<h2>What it says</h2>"]
    for n, record in enumerate(reversed(run.samples)):
        shown = "".join(_sample(sample) for sample in record["samples"] if isinstance(sample, dict))
        parts.append(
            f"<details{' open' * (n == 0)}><summary>at step {quantity(number(record, 'step'))}"
            f"</summary><div>{shown}</div></details>"
        )
    return "\n".join(parts)


def _sample(sample: Mapping[str, Any]) -> str:
    prompt, text = (escape(str(sample.get(key) or "")) for key in ("prompt", "text"))
    # A continuation goes on from its prompt; a filling or an answer stands below what it is of.
    is_above = "«" in text or "&lt;extra_id_" in prompt
    marked = re.sub("«([^»]*)»", r"<mark>\1</mark>", text)
    where = "from above" if is_above else "from"
    return f'<div class="sample"><span class="{where}">{prompt}</span>{marked}</div>'


def key_value_table(values: Mapping[str, Any]) -> str:
    """Nested values as a table of names and values."""
    rows = [
        f'<tr><th>{escape(name)}</th><td class="wide">{escape(value)}</td></tr>'
        for name, value in _flat(values)
    ]
    return (
        f'<div class="scroll"><table><tbody>{"".join(rows)}</tbody></table></div>' if rows else ""
    )


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in values.items():
        name = f"{prefix}{key}".replace("_", " ")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}: ")
        elif isinstance(value, list):
            yield name, ", ".join(map(cell, value))
        elif value is not None:
            yield name, cell(value)


def _table(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = values.get(key)
    return value if isinstance(value, Mapping) else {"kind": value} if value else {}


def _figure(caption: str, lines: Sequence[Line], *, is_large: bool = False) -> str:
    """Curves in a frame; a large figure has a second form for narrow screens."""
    label = f"{caption} against steps"
    plot = plot_curves(lines, "step", escape(label))
    if is_large:
        broad = plot_curves(lines, "step", escape(label), tall=True)
        plot = f'<div class="broad">{broad}</div><div class="narrow">{plot}</div>'
    return f'<figure class="card"><figcaption>{escape(caption)}</figcaption>{plot}</figure>'


def _details(summary: str, content: str) -> str:
    if not content:
        return ""
    return f"<details><summary>{escape(summary)}</summary><div>{content}</div></details>"


def _median(values: Sequence[float]) -> float:
    known = sorted(value for value in values if value == value)
    return known[len(known) // 2] if known else float("nan")


def _median_percent(values: Sequence[float]) -> str:
    middle = _median(values)
    return f"{100 * middle:.0f} %" if middle == middle else "–"


def _or_infinite(value: float) -> float:
    return value if value == value else float("inf")
