"""`foreword check`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.disk import atomic
from foreword.display.progress import ProgressDisplay, progress_of
from foreword.display.results import Facts, Heading, Output, Part, ResultTable, Text, TokenRow
from foreword.errors import UserError
from foreword.formatting import byte_size, quantity, rounded
from foreword.settings import kinds
from foreword.settings.ranges import Count, CountOrZero
from foreword.verbs import _plan
from foreword.verbs._contract import PYTHON_ONLY, Flag, Verb
from foreword.verbs._groups import Budgets
from foreword.verbs._plan import Plans
from foreword.verbs._privacy import LooksForPersonal
from foreword.verbs._recipe import Trains

if TYPE_CHECKING:
    from foreword.planning.check import CheckedRun
    from foreword.planning.dial import Dial
    from foreword.planning.preview import PreviewRow, PreviewToken
    from foreword.planning.request import RunRequest
    from foreword.planning.source_estimate import SourceEstimate
    from foreword.runs.recipe import Recipe

SLOWER = 1.1  # times the hours asked for, from which a dial's epochs are said to take longer
OVER_HOURS = (
    "by the steps timed here, the epochs of this text take longer than --hours: the machine is "
    "slower or busier than its speed of products says; the run ends after its epochs all the same"
)
BY_STEPS = "(in the hours, by the steps timed here; the dial knew the speed of products alone)"
COLOURS = {
    "masked": "black on bright_yellow",
    "random": "black on bright_red",
    "kept": "black on bright_cyan",
    "sentinel": "black on bright_magenta",
    "special": "blue",
    "first": "black on bright_green",
    "predicted": "green",
    "unscored": "dim",
    "plain": "",
}
ABOUT_SOURCES = (
    "worth: epochs of new text that the epochs read are worth: U tokens repeated R times count as",
    "U + U R* (1 - exp(-R / R*)), R* = 15.4 (Muennighoff et al. 2023). Up to 4 epochs are worth",
    "nearly as much as new text; no number of them is worth more than 16.4.",
)


@dataclass(frozen=True)
class Check(Trains, Plans, LooksForPersonal, Verb[Output]):
    """Estimate a run's memory, time and text, and show a decoded batch.

        foreword.check("bert_mini", "books/", hours=1)

    Nothing is trained or saved. Of large texts only the first 20 MB are read; without text, sizes,
    parameters and the least memory are shown. --privacy also counts
    strings that look personal, with an example of each, masked; with text in place of the recipe,
    that is all it does. With --gpus or --gpu, plan a run on such GPUs by arithmetic, which needs no
    text: memory, time, checkpoints.

    Attributes:
        rows: rows of the first batch to show.
        shown_tokens: tokens of each row to show.
        progress: whether to show the progress, or what shows it.
    """

    _: KW_ONLY
    rows: CountOrZero = 2
    shown_tokens: Annotated[Count, Flag(("--show-tokens",))] = 96
    progress: Annotated[bool | ProgressDisplay, PYTHON_ONLY] = True

    def __call__(self) -> Output:
        if self.gpus is not None or self.gpu is not None:
            return self._plan()
        self.refuse(_names(Plans), "requires --gpus or --gpu")
        progress = progress_of(self.progress, announces=True)
        is_path = isinstance(self.recipe, str | PathLike)
        if self.privacy and not self.data and is_path and Path(str(self.recipe)).exists():
            return self._text_alone(progress)
        self.require_possible(self.text())
        request = self.request(self.text(), progress.note, needs_text=self.privacy)
        if request.recipe.model.trains_offline:
            raise UserError(
                f"{self.recipe}: trains offline, and has no steps to estimate by; "
                "'foreword pretrain' trains it"
            )
        return self._run(request, progress) if request.inputs.texts else _sizes(request)

    def _run(self, request: RunRequest, progress: ProgressDisplay) -> Output:
        """Check a run on the beginning of its text."""
        from foreword.planning.check import check_run

        size = (self.rows, self.shown_tokens)
        with progress as display, atomic.temporary_folder() as folder:
            checked = check_run(request, folder, display.stage, size, display.note)
            personal = None
            if self.privacy:
                texts, read = request.inputs.texts, request.recipe.read
                personal = self.personal_strings(texts, read, display.stage)
        content, parts = checked.figures(), list[Part]()
        if request.dial is not None:
            parts += _dial(request.dial, checked.setup.recipe)
            content["dial"] = request.dial.facts
        parts += _parts(checked, content, is_dial=request.dial is not None)
        if self.hours and content["seconds"]["total"] > SLOWER * 3_600 * self.hours:
            parts.append(OVER_HOURS)
        if personal is not None:
            parts += self.shown(personal)
            content["privacy"] = asdict(personal)
        return Output(parts, content)

    def _text_alone(self, progress: ProgressDisplay) -> Output:
        """Count the strings that look personal in text that is named in place of a recipe."""
        from foreword.data.text_files import ReadSettings
        from foreword.verbs._arguments import paths

        self.refuse(_names(Budgets), "requires a recipe")
        text = str(self.recipe)
        if text.endswith(".toml"):
            raise UserError("--data: name the text: files, folders or globs")
        texts = [text, *paths(self.more)]
        self.require_possible(texts)
        with progress as display:
            personal = self.personal_strings(texts, self.read_as(ReadSettings()), display.stage)
        return Output(self.shown(personal), {"privacy": asdict(personal)})

    def _plan(self) -> Output:
        """Plan the run on GPUs that need not be here."""
        from foreword.planning.dial import FAMILIES
        from foreword.planning.gpus import find_gpu
        from foreword.planning.plan import plan
        from foreword.verbs._arguments import assignments

        allowed = {"settings", *_names(Budgets)}
        others = [name for name in _names(Trains, LooksForPersonal) if name not in allowed]
        self.refuse(others, "cannot be combined with --gpus or --gpu")
        if isinstance(self.recipe, str) and self.recipe in FAMILIES:
            raise UserError(
                f"{self.recipe}: is sized to this machine; with --gpus name a recipe, such as "
                f"{FAMILIES[self.recipe].small}"
            )
        name, gpu = find_gpu(self.gpu or "h100")
        recipe, budget = self.read_recipe(assignments(self.settings)), self.budget()
        if budget is not None:
            recipe = replace(recipe, train=budget.applied_to(recipe.train))
        assumptions, gpus = self.assumptions(), self.gpus or 1
        # Of a recipe that changes, as if all of it were like what takes longest.
        plans = [plan(one, gpu, gpus, assumptions) for one in recipe.extremes()]
        made = max(plans, key=lambda plan: plan.seconds(plan.best))
        title = (str(self.recipe) if isinstance(self.recipe, str | PathLike) else "recipe", name)
        return Output(
            _plan.shown(made, title, gpu, gpus, assumptions),
            _plan.document(made, name, gpu, gpus, assumptions),
        )


def _names(*groups: type) -> list[str]:
    return [f.name for group in groups for f in fields(group)]


def _sizes(request: RunRequest) -> Output:
    """Return what is known of a run without text."""
    from foreword.nn.model import neural_settings
    from foreword.planning.check import sizes_of
    from foreword.train.budget import Budget

    recipe, content = request.recipe, sizes_of(request)
    model, length = neural_settings(recipe.model), recipe.packing.length
    total, available = content["parameters"]["total"], content["memory_bytes"]["available"]
    least = content["memory_bytes"]["total"]
    parts, needs = (
        {part: n for part, n in content[name].items() if part not in ("total", "available")}
        for name in ("parameters", "memory_bytes")
    )
    facts = {
        "parameters": f"{total:,}: "
        + ", ".join(f"{name} {count:,}" for name, count in parts.items() if count)
        + f"; vocabulary {content['vocab']:,}",
        "sizes": f"{model.depth} layers of {model.d_model:,}; {recipe.rows_per_step:,} rows of "
        f"{length:,} tokens a step",
        "memory": f"at least {byte_size(least)} of {byte_size(available)}: "
        + ", ".join(f"{name} {byte_size(count)}" for name, count in needs.items()),
        "budget": Budget.of(recipe.train).describe(),
        "": "(counted without computing; with text, --data, also time, steps and a batch)",
    }
    return Output([Facts(facts)], content)


def _dial(dial: Dial, recipe: Recipe) -> list[Part]:
    """Return what a dial chose, with reasons; `recipe` has what `--set` overruled."""
    dial_recipe = dial.recipe()
    rows, overruled = [], ""
    for choice in dial.choices:
        value, actual = (_setting(r, choice.setting) for r in (dial_recipe, recipe))
        reason = choice.reason
        if value != actual:
            reason = f"--set; the dial has {_value(value)}"
            overruled = ". This and the reasons are for the dial's own values, without --set"
        rows.append({"setting": choice.setting, "value": _value(actual), "why": reason})
    known = {"expected loss": f"{dial.expected}{overruled}", "counting": dial.counting or None}
    facts = Facts(known)
    return [ResultTable(rows, dial.title), facts, Text("")]


def _setting(recipe: Recipe, path: str) -> Any:
    """Return a setting of a recipe; None where it has no such setting."""
    value: Any = recipe
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def _value(value: Any) -> str:
    if not isinstance(value, int | float):
        return "" if value is None else kinds.name_of(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _parts(checked: CheckedRun, figures: dict[str, Any], *, is_dial: bool) -> list[Part]:
    parts: list[Part] = [Facts(_facts(checked, figures, is_dial=is_dial))]
    if checked.sources:
        parts += [Text(""), *_sources(checked.sources)]
    if checked.stages:
        parts += [Text(""), _stages(checked)]
    batches = [("", checked.rows)]
    if checked.stages[1:]:
        batches = [(f"stage {n}, ", stage.rows) for n, stage in enumerate(checked.stages, 1)]
    for stage, rows in batches:
        for number, row in enumerate(rows, 1):
            parts.append(Heading(f"\n{stage}row {number} of {checked.data['rows_per_step']}"))
            if row.source:
                parts.append(_tokens(source=row.source))
            parts.append(_tokens(input=row.inputs, target=row.targets))
    shown = [row for _, rows in batches for row in rows]
    return [*parts, Text(""), _legend(shown)] if shown else parts


def _stages(checked: CheckedRun) -> Part:
    rows = [
        {
            "stage": n,
            "share": f"{stage.share:.4g}",
            "from step": f"{stage.begin:,}",
            "FLOPs per step": f"{stage.estimate.flops_per_step:.3g}",
            "s per step": f"{stage.estimate.seconds_per_step:.3g}",
            "what differs": stage.changes,
        }
        for n, stage in enumerate(checked.stages, 1)
    ]
    return ResultTable(rows, "stages")


def _facts(checked: CheckedRun, figures: dict[str, Any], *, is_dial: bool) -> dict[str, str | None]:
    from foreword.train.device import precision_warning

    estimate, data, memory = checked.estimate, checked.data, checked.estimate.memory
    total = figures["parameters"]["total"]
    components = ", ".join(f"{name} {count:,}" for name, count in estimate.parameters.items())
    emulated = precision_warning(checked.setup.device, checked.setup.dtype)
    train, vectors = checked.setup.recipe.train, figures["flops"]["first_embeddings"]
    micro, amount = train.micro_batch, ""
    if train.activation_checkpointing != "none":
        amount = f" with train.activation_checkpointing={train.activation_checkpointing}"
    return {
        "parameters": f"{total:,}: {components}; vocabulary {data['vocab']:,}",
        "memory": f"{byte_size(memory.total)} of {byte_size(memory.available)}: "
        + ", ".join(f"{name} {byte_size(count)}" for name, count in memory.parts.items() if count),
        "": f"(activations: what backward needs of a micro-batch of {micro} rows{amount}, "
        "counted tensor by tensor)"
        if estimate.rows_timed
        else "(counted without computing: too large for this machine)",
        "compute": f"{estimate.flops_per_step:.3g} FLOPs per step, "
        f"{figures['flops']['total']:.3g} in total"
        + (f"; first embeddings at most {vectors:.2g}" if vectors else ""),
        "time": f"{rounded(estimate.seconds_per_step)} s per step, "
        f"{_duration(figures['seconds']['total'])} in total, in {figures['precision']} on "
        f"{figures['computed_on']}",
        " ": f"(the median of 3 steps or more, after 2 to warm up, on {estimate.rows_timed} of "
        f"{data['rows_per_step']} rows; without evaluations and checkpoints)"
        if estimate.rows_timed
        else "(if there were enough memory, at full matrix-product speed)",
        "  ": f"({emulated})" if emulated else None,
        "budget": f"{estimate.steps:,} steps of {estimate.tokens_per_step:,.0f} tokens: "
        f"{rounded(estimate.epochs)} epochs{'' if checked.sources else _worth(estimate.epochs)}",
        "   ": BY_STEPS if is_dial and train.hours and estimate.rows_timed else None,
        "text": _text(data),
        "notes": "; ".join(data["notes"]) or None,
        "first loss": f"{estimate.first_loss:.3f} nats; chance loss {figures['chance_loss']:.3f}",
    }


def _worth(epochs: float) -> str:
    """Return what epochs of a text read many times are worth, in words."""
    from foreword.data.mixture import WORTH_IT, effective_epochs

    if epochs <= WORTH_IT:
        return ""
    worth = rounded(effective_epochs(epochs))
    return f", worth {worth} of new text to a decoder (Muennighoff et al. 2023)"


def _text(data: dict[str, Any]) -> str:
    from foreword.data.prepared_text import data_warnings

    about = "about " if data["share_read"] < 1 else ""
    sentences = f" of {rounded(data['sequences'] / data['documents'])} sentences"
    text = (
        f"{about}{data['tokens']:,} training tokens in {about}{data['documents']:,} documents"
        f"{sentences if data['has_pairs'] else ''}, "
        f"{about}{data['heldout_tokens']:,} held out in {about}{data['heldout_documents']:,}"
    )
    if about:
        text += f" (estimated from the first {data['share_read']:.2%})"
    warnings = data_warnings(data["counts"], data["unknown_tokens"])
    text += "".join(f"; {count:,} {what}" for what, count in warnings.items())
    lost = ", ".join(data["not_kept"])
    return text + (f"; not kept by the tokenizer: {lost}" if lost else "")


def _sources(sources: Sequence[SourceEstimate]) -> Iterator[Part]:
    """Yield a table of sources, and a line for each that is repeated too often."""
    rows = [
        {
            "source": source.name,
            "tokens": quantity(source.tokens),
            "share": f"{source.share:.2%}",
            "stage": source.stage or "all",
            "epochs": rounded(source.epochs),
            "worth": rounded(source.worth),
            "effective tokens": quantity(source.effective_tokens),
        }
        for source in sources
    ]
    yield ResultTable(rows, "sources")
    yield from map(Text, ABOUT_SOURCES)
    for source in sources:
        if source.epochs > source.worth_it:
            yield Text(
                f"{source.name}: {rounded(source.epochs)} epochs are more than the "
                f"{source.worth_it:g} that are worth it; lower its weight, or set its epochs"
            )


def _tokens(**rows: Sequence[PreviewToken]) -> TokenRow:
    """Return tokens in the colours of their roles; several rows stand one below the other."""
    (label, pieces), *others = rows.items()
    texts, styles = [p.text for p in pieces], [COLOURS[p.mark] for p in pieces]
    return TokenRow(label, texts, styles, _tokens(**dict(others)) if others else None)


def _legend(rows: Sequence[PreviewRow]) -> TokenRow:
    """Return the roles of the tokens in their colours, each with its meaning."""
    from foreword.planning.preview import ROLES

    used = {p.mark for row in rows for part in (row.source, row.inputs, row.targets) for p in part}
    marks = [mark for mark in ROLES if mark in used and mark != "plain"]
    pieces = [piece for mark in marks for piece in (f" {mark} ", f"{ROLES[mark]}  ")]
    return TokenRow("", pieces, [style for mark in marks for style in (COLOURS[mark], "")])


def _duration(seconds: float) -> str:
    for unit, name in ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes")):
        if seconds >= 1.5 * unit:
            return f"{seconds / unit:,.1f} {name}"
    return f"{seconds:.1f} s"
