"""What `check --gpus` and `check --gpu` show: a run on GPUs you do not have."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli import console
from foreword.cli._options import Options
from foreword.settings.ranges import Count, NonNegative, Positive, PositiveShare

if TYPE_CHECKING:
    from foreword.cli._run_options import RunOptions
    from foreword.runs.gpu_memory import GpuMemory
    from foreword.runs.gpus import GPU
    from foreword.runs.plan import Assumptions, Division, Plan
    from foreword.train.budget import Budget


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
        """Return the assumptions, with defaults for options left out."""
        from foreword.runs.plan import Assumptions

        options = {n: v for n, v in asdict(self).items() if n not in ("gpus", "gpu")}
        return Assumptions(**{name: value for name, value in options.items() if value is not None})


def run(
    options: RunOptions, budget: Budget | None, planning: PlanOptions, *, as_json: bool
) -> None:
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
    name, gpu = find_gpu(planning.gpu or "h100")
    recipe = read_recipe(options.recipe, options.assign or ())
    if budget is not None:
        recipe = replace(recipe, train=budget.applied_to(recipe.train))
    assumptions, gpus = planning.assumptions(), planning.gpus or 1
    run_plan = plan(recipe, gpu, gpus, assumptions)
    if as_json:
        console.emit(document(run_plan, name, gpu, gpus, assumptions))
    else:
        show(run_plan, (options.recipe, name), gpu, gpus, assumptions)


def document(
    plan: Plan, name: str, gpu: GPU, gpus: int, assumptions: Assumptions
) -> dict[str, Any]:
    """Return a plan as a JSON document."""
    settings = [_as_json(setting) for setting in plan.settings]
    return {
        **asdict(plan),
        "settings": settings,
        "best": _as_json(plan.best),
        "gpu": {"name": name, "count": gpus, **asdict(gpu)},
        "assumptions": asdict(assumptions),
        "tokens_per_second": plan.tokens_per_second,
        "days": plan.days,
        "flops": plan.flops_per_step * plan.steps,
    }


def _as_json(setting: Division) -> dict[str, Any]:
    memory = {**setting.memory.parts, "total": setting.memory.total}
    return {**asdict(setting), "memory": memory, "seconds": setting.seconds}


def show(plan: Plan, title: tuple[str, str], gpu: GPU, gpus: int, assumptions: Assumptions) -> None:
    """Print a plan: the ways to divide the run, then the best in detail.

    Args:
        plan: the plan.
        title: names of the recipe and the GPU.
        gpu: to plan for.
        gpus: how many.
        assumptions: of the plan.
    """
    from foreword.runs.plan import precision_name

    rows = [
        [
            setting.kind,
            setting.checkpointing,
            setting.micro_batch,
            _gigabytes(setting.memory.total),
            setting.fits,
            f"{setting.seconds:.3g}" if setting.seconds < 100 else f"{setting.seconds:,.0f}",
            _time(plan.seconds(setting)) if setting.fits else "",
        ]
        for setting in plan.settings
    ]
    recipe, name = title
    console.table(
        f"{recipe} on {gpus:,} x {name}, {gpu.memory_gb:g} GB each",
        ["parallel", "checkpointing", "rows", "GB", "fits", "s/step", "time"],
        rows,
    )
    console.out.print(
        "parallel.kind, train.activation_checkpointing, rows computed at once; GB on each GPU\n",
        style="dim",
    )
    console.facts(
        {
            **(_best(plan, gpu, gpus, assumptions) if plan.best.fits else _too_large(plan, gpus)),
            "memory": _memory(plan.best.memory, gpu),
            "step": f"{plan.rows_per_step:,} rows, {plan.tokens_per_step:,.0f} tokens, "
            f"{plan.flops_per_step:.3g} FLOPs; {sum(plan.parameters.values()):,} parameters",
            **(_safety(plan, assumptions) if plan.best.fits else {}),
            "assumed": f"{assumptions.utilisation:.0%} of {gpu.flops_per_second / 1e12:,.4g} "
            f"TFLOP/s in {precision_name(gpu.dtype)} (--utilisation), communication while "
            "computing, no compiled blocks",
            "numbers": gpu.source,
        }
    )


def _gigabytes(count: int) -> str:
    size = count / 1e9
    return f"{size:,.0f}" if size >= 100 else f"{size:.1f}" if size >= 1 else f"{size:.2f}"


def _time(seconds: float) -> str:
    """Return a time as days, from two days on; else as hours, minutes or seconds."""
    from foreword.formatting import duration

    days = seconds / 86_400
    if days < 2:
        return duration(seconds)
    return (
        "no end"
        if days == math.inf
        else f"{days:,.3g} days"
        if days < 1000
        else f"{days:,.0f} days"
    )


def _best(plan: Plan, gpu: GPU, gpus: int, assumptions: Assumptions) -> dict[str, str]:
    """Return the lines about the best setting: what to set, how long it takes, what it costs."""
    from foreword.formatting import quantity

    best, hours = plan.best, plan.seconds(plan.best) / 3600
    settings: dict[str, str] = {"parallel.kind": best.kind} if gpus > 1 else {}
    settings |= {"train.activation_checkpointing": best.checkpointing}
    settings |= {"train.micro_batch": f"{best.micro_batch}"}
    lines = {
        "best": " ".join(f"--set {name}={value}" for name, value in settings.items()),
        "time": f"{_time(3600 * hours)} for {plan.steps:,} steps, "
        f"{quantity(plan.steps * plan.tokens_per_step)} tokens, "
        f"{plan.flops_per_step * plan.steps:.3g} FLOPs",
        "cost": f"{hours * gpus:,.3g} GPU-hours"
        if hours * gpus < 10
        else f"{hours * gpus:,.0f} GPU-hours",
        "speed": f"{quantity(plan.tokens_per_second)} tokens/s, "
        f"{quantity(plan.tokens_per_second / gpus)} of each GPU",
    }
    if plan.dollars is not None:
        lines["cost"] += f", {plan.dollars:,.0f} dollars at {assumptions.price:g} each"
    if best.network_seconds > best.compute_seconds:
        lines["network"] = (
            f"decides: {best.network_seconds:.3g} s per step to send, "
            f"{best.compute_seconds:.3g} s to compute"
        )
    if missing := -plan.rows_per_step % gpus:
        lines["uneven"] = (
            f"{plan.rows_per_step:,} rows on {gpus:,} GPUs: some compute "
            f"{-(-plan.rows_per_step // gpus):,}, others one less; "
            f"train.batch={plan.rows_per_step + missing} would keep all busy"
        )
    return lines


def _too_large(plan: Plan, gpus: int) -> dict[str, str]:
    """Return the lines of a plan that does not fit: what is nearest, and on how many it would."""
    best = plan.best
    least = f"{best.kind} with checkpointing {best.checkpointing}"
    more = f"on no number of them up to the {plan.rows_per_step:,} rows of a step"
    if plan.fits_on is not None:
        more = f"on {plan.fits_on:,} of them"
    return {"fits": f"none of these; {least} takes the least memory", "would fit": more}


def _memory(memory: GpuMemory, gpu: GPU) -> str:
    from foreword.formatting import byte_size

    parts = ", ".join(f"{name} {byte_size(n)}" for name, n in memory.parts.items() if n)
    return f"{byte_size(memory.total)} of {gpu.memory_gb:g} GB: {parts}"


def _safety(plan: Plan, assumptions: Assumptions) -> dict[str, str]:
    from foreword.formatting import byte_size, duration, figure

    if plan.slowdown == math.inf:
        cost = "there would be no end: a checkpoint takes longer than runs go without failure"
    else:
        cost = (
            f"with a checkpoint every {duration(plan.checkpoint_interval)} they cost "
            f"{plan.slowdown - 1:.2%} more time, which is counted"
        )
    return {
        "checkpoint": f"{byte_size(plan.checkpoint_bytes)}, written in "
        f"{duration(plan.checkpoint_seconds)} at {assumptions.storage_gb_s:g} GB/s, from copies "
        f"of up to {byte_size(plan.copy_bytes)} in the memory of a node",
        "failures": f"one in {figure(plan.hours_between_failures, 3)} hours; {cost}",
    }
