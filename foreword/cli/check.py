"""`foreword check`: estimate the cost of a run and show a batch, before any training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli import _plan, _privacy, console
from foreword.cli._budget_options import BudgetOptions
from foreword.cli._model_options import Json, Quiet
from foreword.cli._plan import PlanOptions
from foreword.cli._privacy import PrivacyOptions
from foreword.cli._reading import Reading
from foreword.cli._run_options import RunOptions
from foreword.cli._sources import (
    SourceEstimate,
    estimate_sources,
    sample,
    sample_sources,
    shares_read,
    show_sources,
)
from foreword.disk import atomic
from foreword.settings import kinds
from foreword.settings.ranges import Count, CountOrZero

if TYPE_CHECKING:
    from foreword.api.progress import ProgressDisplay
    from foreword.api.request import RunRequest
    from foreword.data.prepared_text import PreparedText
    from foreword.runs.dial import Dial
    from foreword.runs.estimate import Estimate
    from foreword.runs.preview import PreviewRow, PreviewToken
    from foreword.runs.recipe import Recipe
    from foreword.runs.setup import TrainingSetup
    from foreword.runs.stages import Stage

SAMPLE_BYTES = 20_000_000  # of text: enough for a tokenizer and a batch, and read in seconds
BY_STEPS = "(in the hours, by the steps timed here; the dial knew the speed of products alone)"
Shares = tuple[float, float]  # shares read of the training text and of the held-out text
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


@dataclass(frozen=True)
class CheckResult:
    """The result of a check.

    Attributes:
        setup: the set-up that training would have.
        estimate: the cost of the run.
        rows: some rows of the first batch.
        data: counts of the text.
        sources: those of a mixture.
    """

    setup: TrainingSetup
    estimate: Estimate
    rows: list[PreviewRow]
    data: dict[str, Any]
    sources: list[SourceEstimate]


def check(
    options: RunOptions,
    budget: BudgetOptions,
    reading: Reading,
    privacy: PrivacyOptions,
    planning: PlanOptions,
    rows: Annotated[CountOrZero, typer.Option(help="Rows of the first batch to show.")] = 2,
    shown_tokens: Annotated[
        Count, typer.Option("--show-tokens", help="Tokens of each row to show.")
    ] = 96,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Estimate a run's memory, time and text, and show a decoded batch.

    Nothing is trained or saved. Of large texts only the first 20 MB are read; without text, sizes,
    parameters and the least memory are shown. --privacy also counts
    strings that look personal, with an example of each, masked; with text in place of the recipe,
    that is all it does. With --gpus or --gpu, plan a run on such GPUs by arithmetic, which needs no
    text: memory, time, checkpoints.
    """
    from foreword.api.progress import progress_of
    from foreword.api.request import request as requested
    from foreword.errors import UserError

    if planning.is_asked:
        for group in (reading, privacy):
            group.refuse("cannot be combined with --gpus or --gpu")
        _plan.run(options, budget.resolve(), planning, as_json=json)
        return
    planning.refuse("requires --gpus or --gpu")
    progress = progress_of(not quiet, announces=True)
    if privacy.privacy and not options.data and Path(options.recipe).exists():
        budget.refuse("requires a recipe")
        _check_privacy(options, reading, privacy, progress, as_json=json)
        return
    privacy.require_possible(options.arguments()["data"])
    request = requested(
        **options.arguments(),
        budget=budget.resolve(),
        reading=reading.overrides,
        needs_text=privacy.privacy,
        note=progress.note,
    )
    if request.recipe.model.trains_offline:
        raise UserError(
            f"{options.recipe}: trains offline, and has no steps to estimate by; "
            "'foreword pretrain' trains it"
        )
    if not request.inputs.texts:
        _show_sizes(request, as_json=json)
        return
    personal = None
    try:
        with progress as display, atomic.temporary_folder() as folder:
            if privacy.privacy:
                texts, read = request.inputs.texts, request.recipe.read
                personal = privacy.counts(texts, read, SAMPLE_BYTES, display.stage)
            result = _check(request, folder, display.stage, (rows, shown_tokens))
    except UserError:
        if personal is not None and not json:
            _privacy.show(personal, privacy.country)  # minutes of counting, whatever else is wrong
        raise
    dial = request.dial
    if json:
        document = _document(result) | ({} if dial is None else {"dial": dial.facts})
        console.emit(
            document | ({} if personal is None else {"privacy": _privacy.as_json(personal)})
        )
    else:
        if dial is not None:
            _show_dial(dial, result.setup.recipe)
        _show(result, is_dial=dial is not None)
        if personal is not None:
            _privacy.show(personal, privacy.country)


def _show_sizes(request: RunRequest, *, as_json: bool) -> None:
    """Print what is known of a run without text."""
    from foreword.formatting import byte_size
    from foreword.nn.model import neural_settings
    from foreword.runs.sizes import count_parameters, least_memory_by_purpose, memory_of
    from foreword.text.tokenizer import Tokenizer
    from foreword.train.budget import Budget
    from foreword.train.device import choose_device

    # Parameters and memory; the vocabulary is that of the tokenizer, if there is one.
    recipe, start = request.recipe, request.starting_model
    tokenizer = None if start is None else start.tokenizer
    if request.inputs.tokenizer is not None:
        tokenizer = Tokenizer.load(request.inputs.tokenizer)
    vocab = None if tokenizer is None else tokenizer.vocab
    parameters, memory = count_parameters(recipe, vocab), least_memory_by_purpose(recipe, vocab)
    size = recipe.tokenizer.vocab if vocab is None else vocab.size
    total, least = sum(parameters.values()), sum(memory.values())
    available = memory_of(choose_device(recipe.train.device, "train.device"))
    if as_json:
        document = {
            "parameters": {**parameters, "total": total},
            "memory_bytes": {**memory, "total": least, "available": available},
            "vocab": size,
        }
        console.emit(document)
        return
    model, length = neural_settings(recipe.model), recipe.packing.length
    console.facts(
        {
            "parameters": f"{total:,}: "
            + ", ".join(f"{name} {count:,}" for name, count in parameters.items() if count)
            + f"; vocabulary {size:,}",
            "sizes": f"{model.depth} layers of {model.d_model:,}; {recipe.rows_per_step:,} rows of "
            f"{length:,} tokens a step",
            "memory": f"at least {byte_size(least)} of {byte_size(available)}: "
            + ", ".join(f"{name} {byte_size(count)}" for name, count in memory.items()),
            "budget": Budget.of(recipe.train).describe(),
            "": "(by arithmetic; with text, --data, also time, steps and a batch)",
        }
    )


def _check(
    request: RunRequest, folder: Path, stage: Stage, preview_size: tuple[int, int]
) -> CheckResult:
    """Check a run in a temporary folder; `preview_size` is the rows to show, and tokens of each."""
    from foreword.errors import UserError
    from foreword.runs import run as running
    from foreword.runs.continued import load_start
    from foreword.runs.corpus import corpus, is_prepared, naming_text_in_errors
    from foreword.runs.estimate import estimate
    from foreword.runs.preview import preview
    from foreword.runs.setup import set_up_training
    from foreword.runs.sizes import MACHINES

    # Replace a large text by its beginning.
    texts = request.inputs.texts
    running.require_possible(request.recipe, request.inputs, request.starting_model, MACHINES)
    shares: Shares = (1.0, 1.0)
    counts = None
    full = request.recipe
    sampled: Mapping[str, float] = {}
    if full.data.sources:
        stage("sampling the text")
        request, sampled = sample_sources(request, folder, SAMPLE_BYTES)
    elif not is_prepared(texts):
        stage("sampling the text")
        request, shares, counts = _sampled(request, folder)

    # Start the run as `pretrain` would, up to its set-up.
    run = folder / "run"
    try:
        with naming_text_in_errors(run, texts):
            request = request.extended(console.say)
            running.start(request.recipe, request.inputs, run, request.starting_model, MACHINES)
            tokenizer, prepared = corpus(request.recipe, run, stage)
            setup = set_up_training(request.recipe, tokenizer, prepared, or_shape=True)
    except UserError as error:
        part = f"the first {SAMPLE_BYTES / 1e6:.0f} MB of the text: " if min(shares) < 1 else ""
        raise UserError(part + str(error).replace(f"{run}/", "")) from error

    # Decode some rows, and measure a few steps.
    rows = preview(setup.feed, tokenizer, *preview_size)
    if next(setup.model.parameters()).is_meta:
        stage("too large for this machine: no steps are taken")
    else:
        load_start(run, setup.model)
        stage("taking a few steps")
    if full.data.sources:
        shares = shares_read(prepared, sampled)
    data = _data(setup, prepared, shares, counts)
    estimated = estimate(setup, shares[0])
    full = replace(full, train=setup.recipe.train)
    sources = estimate_sources(full, setup, prepared, sampled, estimated.steps)
    return CheckResult(setup, estimated, rows, data, sources)


def _sampled(request: RunRequest, folder: Path) -> tuple[RunRequest, Shares, dict[str, Any]]:
    """Return the run on a sample of its texts, the sampled shares, and counts."""
    recipe, inputs = request.recipe, request.inputs
    file, heldout_file = folder / "sample.jsonl", folder / "heldout.jsonl"
    share, counts = sample(inputs.texts, recipe.read, file, SAMPLE_BYTES)
    held_share = share
    if inputs.heldout:
        held_share = sample(inputs.heldout, recipe.read, heldout_file, SAMPLE_BYTES)[0]
    heldout = (str(heldout_file),) if inputs.heldout else ()
    target = "target" if recipe.read.target else ""
    recipe = replace(recipe, read=replace(recipe.read, field="text", target=target))
    inputs = replace(inputs, texts=(str(file),), heldout=heldout)
    return replace(request, recipe=recipe, inputs=inputs), (share, held_share), counts


def _data(
    setup: TrainingSetup, prepared: PreparedText, shares: Shares, counts: dict[str, Any] | None
) -> dict[str, Any]:
    """Return counts of the text, extrapolated from the shares read."""
    share, held_share = shares
    train, heldout = prepared.counts["train"], prepared.counts["heldout"]
    read = counts or prepared.manifest["read"]["counts"]
    return {
        **{
            f"{side}{name}": round(getattr(split, name) / part)
            for side, split, part in (("", train, share), ("heldout_", heldout, held_share))
            for name in ("tokens", "documents", "sequences")
        },
        "unknown_tokens": prepared.counts["train"].unknown,
        "not_kept": setup.tokenizer.not_kept(),
        "share_read": share,
        "vocab": setup.vocab.size,
        "rows_per_step": setup.recipe.rows_per_step,
        "row_length": setup.recipe.packing.length,
        "has_pairs": setup.recipe.packing.labels_pairs,
        "counts": read,
        "notes": setup.notes(prepared),
    }


def _document(result: CheckResult) -> dict[str, Any]:
    """Return the result as a JSON document."""
    from foreword.runs.estimate import chance_loss
    from foreword.runs.first_embeddings import most_flops
    from foreword.train.device import describe

    estimate, train = result.estimate, result.setup.recipe.train
    return {
        "parameters": {**estimate.parameters, "total": sum(estimate.parameters.values())},
        "memory_bytes": {**asdict(estimate.memory), "total": estimate.memory.total},
        "flops": {
            "per_step": estimate.flops_per_step,
            "total": estimate.flops_per_step * estimate.steps,
            "first_embeddings": most_flops(result.setup.recipe, result.setup.vocab),
        },
        "seconds": {
            "per_step": estimate.seconds_per_step,
            "total": estimate.seconds_per_step * estimate.steps,
            "rows_timed": estimate.rows_timed,
        },
        "steps": estimate.steps,
        "tokens_per_step": estimate.tokens_per_step,
        "epochs": estimate.epochs,
        "first_loss": estimate.first_loss,
        "chance_loss": chance_loss(result.setup.recipe.objective, result.setup.vocab.size),
        "micro_batch": train.micro_batch,
        "precision": train.precision,
        "computed_on": describe(result.setup.device),
        "data": result.data,
        **({"sources": [asdict(source) for source in result.sources]} if result.sources else {}),
        "batch": [asdict(row) for row in result.rows],
    }


def _check_privacy(
    options: RunOptions,
    reading: Reading,
    privacy: PrivacyOptions,
    progress: ProgressDisplay,
    *,
    as_json: bool,
) -> None:
    """Count the strings that look personal in text that is named in place of a recipe."""
    from foreword.api._arguments import read_as
    from foreword.data.text_files import ReadSettings
    from foreword.errors import UserError

    if options.recipe.endswith(".toml"):
        raise UserError("--data: name the text: files, folders or globs")
    texts = [options.recipe, *(options.more or [])]
    privacy.require_possible(texts)
    with progress as display:
        read = read_as(ReadSettings(), reading.overrides)
        personal = privacy.counts(texts, read, SAMPLE_BYTES, display.stage)
    if as_json:
        console.emit({"privacy": _privacy.as_json(personal)})
    else:
        _privacy.show(personal, privacy.country)


def _show_dial(dial: Dial, recipe: Recipe) -> None:
    """Print what a dial chose, with reasons; `recipe` has what `--set` overruled."""
    dial_recipe = dial.recipe()
    rows, overruled = [], ""
    for choice in dial.choices:
        value, actual = (_setting(r, choice.setting) for r in (dial_recipe, recipe))
        reason = choice.reason
        if value != actual:
            reason = f"--set; the dial has {_value(value)}"
            overruled = ". This and the reasons are for the dial's own values, without --set"
        rows.append([choice.setting, _value(actual), reason])
    console.table(dial.title, ["setting", "value", "why"], rows)
    console.facts({"expected loss": dial.expected + overruled})
    console.out.print()


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


def _show(result: CheckResult, *, is_dial: bool) -> None:
    from foreword.formatting import byte_size
    from foreword.train.device import precision_warning

    # The figures, one fact per line.
    estimate, data, memory = result.estimate, result.data, result.estimate.memory
    document = _document(result)
    total = document["parameters"]["total"]
    components = ", ".join(f"{name} {count:,}" for name, count in estimate.parameters.items())
    emulated = precision_warning(result.setup.device, result.setup.dtype)
    train, vectors = result.setup.recipe.train, document["flops"]["first_embeddings"]
    micro, amount = train.micro_batch, ""
    if train.activation_checkpointing != "none":
        amount = f" with train.activation_checkpointing={train.activation_checkpointing}"
    console.facts(
        {
            "parameters": f"{total:,}: {components}; vocabulary {data['vocab']:,}",
            "memory": f"{byte_size(memory.total)} of {byte_size(memory.available)}: "
            + ", ".join(
                f"{name} {byte_size(count)}" for name, count in memory.parts.items() if count
            ),
            "": f"(activations: what backward needs of a micro-batch of {micro} rows{amount}, "
            f"counted tensor by tensor on {estimate.rows_timed})"
            if estimate.rows_timed
            else "(by arithmetic, activations as a lower bound: too large for this machine)",
            "compute": f"{estimate.flops_per_step:.3g} FLOPs per step, "
            f"{document['flops']['total']:.3g} in total"
            + (f"; first embeddings at most {vectors:.2g}" if vectors else ""),
            "time": f"{estimate.seconds_per_step:.3g} s per step, "
            f"{_duration(document['seconds']['total'])} in total, in {document['precision']} on "
            f"{document['computed_on']}",
            " ": f"(the median of 3 steps or more, after 2 to warm up, on {estimate.rows_timed} of "
            f"{data['rows_per_step']} rows; without evaluations and checkpoints)"
            if estimate.rows_timed
            else "(if there were enough memory, at full matrix-product speed)",
            **({"  ": f"({emulated})"} if emulated else {}),
            "budget": f"{estimate.steps:,} steps of {estimate.tokens_per_step:,.0f} tokens: "
            f"{estimate.epochs:,.3g} epochs",
            **({"   ": BY_STEPS} if is_dial and train.hours and estimate.rows_timed else {}),
            "text": _text(data),
            **({"notes": "; ".join(data["notes"])} if data["notes"] else {}),
            "first loss": f"{estimate.first_loss:.3f} nats; chance loss "
            f"{document['chance_loss']:.3f}",
        }
    )

    if result.sources:
        console.out.print()
        show_sources(result.sources)

    # The rows of the batch, and what their colours mean.
    for number, row in enumerate(result.rows, 1):
        console.out.print(f"\nrow {number} of {data['rows_per_step']}", style="bold")
        _print_row(row)
    if result.rows:
        _print_legend(result.rows)


def _text(data: dict[str, Any]) -> str:
    from foreword.data.prepared_text import data_warnings

    about = "about " if data["share_read"] < 1 else ""
    sentences = f" of {data['sequences'] / data['documents']:,.3g} sentences"
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


def _print_row(row: PreviewRow) -> None:
    """Print the source, then inputs with the target of each below, wrapped to the console."""
    from rich.text import Text

    def write(label: str, pieces: Sequence[PreviewToken], widths: Sequence[int]) -> None:
        line = Text(f"{label:<8}")
        for piece, width in zip(pieces, widths, strict=True):
            line.append(piece.text, style=COLOURS[piece.mark])
            line.append(" " * (width - _width(piece) + 1))
        line.rstrip()
        console.out.print(line)

    for start, end in _cuts([_width(piece) for piece in row.source]):
        write("source", row.source[start:end], [_width(piece) for piece in row.source[start:end]])
    widths = [max(map(_width, pair)) for pair in zip(row.inputs, row.targets, strict=True)]
    for start, end in _cuts(widths):
        write("input", row.inputs[start:end], widths[start:end])
        write("target", row.targets[start:end], widths[start:end])


def _cuts(widths: Sequence[int]) -> list[tuple[int, int]]:
    """Return where lines begin and end that hold cells of these widths."""
    room, cuts, start, used = console.out.width - 8, [], 0, 0
    for n, width in enumerate(widths):
        if n > start and used + width + 1 > room:
            cuts.append((start, n))
            start, used = n, 0
        used += width + 1
    return [*cuts, (start, len(widths))] if widths else []


def _width(piece: PreviewToken) -> int:
    from rich.cells import cell_len

    return cell_len(piece.text)


def _print_legend(rows: Sequence[PreviewRow]) -> None:
    from rich.text import Text

    from foreword.runs.preview import ROLES

    used = {p.mark for row in rows for part in (row.source, row.inputs, row.targets) for p in part}
    line = Text("\n")
    for mark, meaning in ROLES.items():
        if mark in used and mark != "plain":
            line.append(f" {mark} ", style=COLOURS[mark]).append(f" {meaning}   ")
    console.out.print(line)


def _duration(seconds: float) -> str:
    for unit, name in ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes")):
        if seconds >= 1.5 * unit:
            return f"{seconds / unit:,.1f} {name}"
    return f"{seconds:.1f} s"
