"""What `check --gpus` and `check --gpu` show: a run on GPUs that are not here."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli import console
from foreword.cli._options import Options
from foreword.ranges import Count, NonNegative, Positive, PositiveShare

if TYPE_CHECKING:
    from foreword.cli._run_options import RunOptions
    from foreword.runs.gpus import GPU
    from foreword.runs.plan import Assumptions, Division, GpuMemory, Plan
    from foreword.runs.recipe import Recipe
    from foreword.train.budget import Budget

STATE = ("weights", "gradients", "optimizer", "average")
OTHER = ("logits", "buffers", "context")


@dataclass(frozen=True)
class PlanOptions(Options):
    """GPUs to plan for, and what to assume."""

    gpus: Annotated[
        Count | None,
        typer.Option(help="Plan for this many GPUs that need not be here, without text."),
    ] = None
    gpu: Annotated[
        str | None,
        typer.Option(
            help="Which GPU: h100 (default), a100-80, rtx4090, ...; other numbers: "
            "h100,memory_gb=96; or another one: memory_gb=16,bf16_tflops=65."
        ),
    ] = None
    utilisation: Annotated[
        PositiveShare | None, typer.Option(help="Share of its peak rate; default 0.4.")
    ] = None
    price: Annotated[
        NonNegative | None, typer.Option(help="Dollars for an hour of a GPU; default: not shown.")
    ] = None
    storage_gb_s: Annotated[
        Positive | None, typer.Option(help="Speed of writing checkpoints, GB/s; default 1.")
    ] = None
    failure_hours: Annotated[
        Positive | None,
        typer.Option(help="GPU-hours between failures; default 51,000, as of Llama 3."),
    ] = None

    @property
    def is_asked(self) -> bool:
        """Whether a plan is asked for."""
        return self.gpus is not None or self.gpu is not None

    def assumptions(self) -> Assumptions:
        """Return what to assume, with defaults for what is not given."""
        from foreword.runs.plan import Assumptions

        given = {n: v for n, v in asdict(self).items() if n not in ("gpus", "gpu")}
        return Assumptions(**{name: value for name, value in given.items() if value is not None})


def run(options: RunOptions, budget: Budget | None, asked: PlanOptions, *, as_json: bool) -> None:
    """Plan a run and show it.

    Raises:
        UserError: there is no such recipe or GPU, or no plan for it.
    """
    from foreword.api._arguments import read_recipe
    from foreword.errors import UserError
    from foreword.runs.dial import FAMILIES
    from foreword.runs.gpus import find_gpu
    from foreword.runs.plan import plan

    replace(options, assign=None).refuse("cannot be combined with --gpus or --gpu")
    if options.recipe in FAMILIES:
        raise UserError(
            f"{options.recipe}: is sized to this machine; with --gpus name a recipe, such as "
            f"{FAMILIES[options.recipe].small}"
        )
    name, gpu = find_gpu(asked.gpu or "h100")
    recipe = read_recipe(options.recipe, options.assign or ())
    if budget is not None:
        recipe = replace(recipe, train=budget.applied_to(recipe.train))
    assumptions, gpus = asked.assumptions(), asked.gpus or 1
    made = plan(recipe, gpu, gpus, assumptions)
    if as_json:
        console.emit(document(made, name, gpu, gpus, assumptions))
    else:
        show(recipe, made, f"{gpus:,} x {name}", gpu, gpus, assumptions)


def document(
    made: Plan, name: str, gpu: GPU, gpus: int, assumptions: Assumptions
) -> dict[str, Any]:
    """Return a plan as a JSON document."""
    settings = [_as_json(setting) for setting in made.settings]
    return {
        **asdict(made),
        "settings": settings,
        "best": _as_json(made.best),
        "gpu": {"name": name, "count": gpus, **asdict(gpu)},
        "assumptions": asdict(assumptions),
        "tokens_per_second": made.tokens_per_second,
        "days": made.days,
        "flops": made.flops_per_step * made.steps,
    }


def _as_json(setting: Division) -> dict[str, Any]:
    memory = {**setting.memory.parts, "total": setting.memory.total}
    return {**asdict(setting), "memory": memory, "seconds": setting.seconds}


def show(
    recipe: Recipe, made: Plan, title: str, gpu: GPU, gpus: int, assumptions: Assumptions
) -> None:
    """Print a plan: the ways to divide the run, then the best in detail."""
    from foreword.runs.plan import precision_name

    rows = [
        [
            setting.kind,
            setting.recompute,
            setting.micro_batch,
            _gigabytes(sum(setting.memory.parts[part] for part in STATE)),
            _gigabytes(setting.memory.activations),
            _gigabytes(sum(setting.memory.parts[part] for part in OTHER)),
            _gigabytes(setting.memory.total),
            setting.fits,
            f"{setting.seconds:.3g}",
        ]
        for setting in made.settings
    ]
    columns = ["kind", "recompute", "rows", "state", "kept", "other", "all", "fits", "s"]
    console.table(f"On {title} of {gpu.memory_gb:g} GB", columns, rows)
    console.out.print(
        "kind of parallelism, what backward computes again, rows at once; GB on each GPU:\n"
        "state (weights, gradients, optimizer), activations kept, other; seconds per step\n",
        style="dim",
    )
    console.facts(
        {
            "parameters": f"{sum(made.parameters.values()):,}",
            "step": f"{made.rows_per_step:,} rows, {made.tokens_per_step:,.0f} tokens, "
            f"{made.flops_per_step:.3g} FLOPs",
            **_best(made, gpu, gpus),
            **_length(made, gpus, assumptions),
            **_safety(made, assumptions),
            "assumed": f"{assumptions.utilisation:.0%} of {gpu.flops_per_second / 1e12:,.4g} "
            f"TFLOP/s in {precision_name(gpu.dtype)}; communication overlaps; blocks not compiled",
            "numbers": gpu.source,
        }
    )


def _gigabytes(count: int) -> str:
    size = count / 1e9
    return f"{size:,.0f}" if size >= 100 else f"{size:.1f}" if size >= 1 else f"{size:.2f}"


def _best(made: Plan, gpu: GPU, gpus: int) -> dict[str, str]:
    """Return the lines about the best setting: its memory by part, or that none fits."""
    best = made.best
    what = f"{best.kind}, recompute {best.recompute}, {best.micro_batch:,} rows at once"
    if not best.fits:
        what = f"none fits; the least memory: {what}"
    lines = {"best": what, "memory": _memory(best.memory, gpu)}
    if best.network_seconds > best.compute_seconds:
        lines["network"] = (
            f"decides: {best.network_seconds:.3g} s per step to send, "
            f"{best.compute_seconds:.3g} s to compute"
        )
    if gpus > made.rows_per_step:
        lines["idle"] = (
            f"{gpus - made.rows_per_step:,} GPUs: a step has {made.rows_per_step:,} rows; "
            "set a larger train.batch"
        )
    return lines


def _memory(memory: GpuMemory, gpu: GPU) -> str:
    from foreword.formatting import byte_size

    parts = ", ".join(f"{name} {byte_size(n)}" for name, n in memory.parts.items() if n)
    return f"{byte_size(memory.total)} of {gpu.memory_gb:g} GB: {parts}"


def _length(made: Plan, gpus: int, assumptions: Assumptions) -> dict[str, str]:
    from foreword.formatting import quantity

    hours = 24 * made.days
    time = f"{made.days:,.3g} days" if hours >= 48 else f"{hours:,.3g} hours"
    lines = {
        "speed": f"{quantity(made.tokens_per_second)} tokens/s, "
        f"{quantity(made.tokens_per_second / gpus)} of each GPU",
        "time": f"{time} for {made.steps:,} steps, "
        f"{quantity(made.steps * made.tokens_per_step)} tokens, "
        f"{made.flops_per_step * made.steps:.3g} FLOPs: {hours * gpus:,.0f} GPU-hours",
    }
    if made.dollars is not None:
        lines["price"] = f"{made.dollars:,.0f} dollars, at {assumptions.price:g} for a GPU-hour"
    return lines


def _safety(made: Plan, assumptions: Assumptions) -> dict[str, str]:
    from foreword.formatting import byte_size, duration, figure

    return {
        "checkpoint": f"{byte_size(made.checkpoint_bytes)}, written in "
        f"{duration(made.checkpoint_seconds)} at {assumptions.storage_gb_s:g} GB/s",
        "failures": f"one in {figure(made.hours_between_failures, 3)} hours; with a checkpoint "
        f"every {duration(made.checkpoint_interval)} they cost {made.slowdown - 1:.2%} more time",
    }
