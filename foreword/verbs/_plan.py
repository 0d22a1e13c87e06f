"""The arguments of a verb that plans a run on GPUs that need not be here, and how it shows it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from foreword.display.results import Facts, Part, ResultTable, Text
from foreword.formatting import byte_size, duration, figure, quantity, rounded
from foreword.settings.ranges import Count, NonNegative, Positive, PositiveShare

if TYPE_CHECKING:
    from foreword.planning.gpus import GPU
    from foreword.planning.plan import Assumptions, Division, GpuMemory, Plan


@dataclass(frozen=True, kw_only=True)
class OnGpus:
    """GPUs to plan for, which need not be here.

    Attributes:
        gpus: plan for this many GPUs that need not be here.
        gpu: which GPU: h100 (default), a100-80, rtx4090, ...; with numbers of your own:
            h100,memory_gb=96; or one that is not listed: memory_gb=16,bf16_tflops=65.
        utilisation: share of the GPU's peak rate that training reaches; default: 0.4, in 'plan'
            that of the law files.
        price: dollars for an hour of a GPU; default: not shown.
    """

    gpus: Count | None = None
    gpu: str | None = None
    utilisation: PositiveShare | None = None
    price: NonNegative | None = None


@dataclass(frozen=True, kw_only=True)
class Plans(OnGpus):
    """What else to assume of GPUs.

    Attributes:
        storage_gb_s: speed of writing checkpoints, GB/s; default 1.
        failure_hours: GPU-hours between failures; default 51,000, as of Llama 3.
    """

    storage_gb_s: Positive | None = None
    failure_hours: Positive | None = None

    def assumptions(self) -> Assumptions:
        """Return the assumptions, with defaults for what is left out."""
        from foreword.planning.plan import Assumptions

        names = ("utilisation", "price", "storage_gb_s", "failure_hours")
        values = {name: getattr(self, name) for name in names}
        return Assumptions(**{name: value for name, value in values.items() if value is not None})


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


def shown(
    plan: Plan, title: tuple[str, str], gpu: GPU, gpus: int, assumptions: Assumptions
) -> Sequence[Part]:
    """Return a plan as people read it: the ways to divide the run, then the best in detail.

    Args:
        title: names of the recipe and the GPU.
    """
    from foreword.planning.plan import precision_name

    rows = [
        {
            "parallel": setting.kind,
            "checkpointing": setting.checkpointing,
            "rows": setting.micro_batch,
            "GB": _gigabytes(setting.memory.total),
            "fits": setting.fits,
            "s/step": rounded(setting.seconds),
            "time": _time(plan.seconds(setting)) if setting.fits else "",
        }
        for setting in plan.settings
    ]
    recipe, name = title
    facts = {
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
    return [
        ResultTable(rows, f"{recipe} on {gpus:,} x {name}, {gpu.memory_gb:g} GB each"),
        Text("parallel.kind, activation checkpointing, rows computed at once; GB on each GPU\n"),
        Facts(facts),
    ]


def _gigabytes(count: int) -> str:
    size = count / 1e9
    return f"{size:,.0f}" if size >= 100 else f"{size:.1f}" if size >= 1 else f"{size:.2f}"


def _time(seconds: float) -> str:
    """Return a time as days, from two days on; else as hours, minutes or seconds."""
    days = seconds / 86_400
    if days < 2:
        return duration(seconds)
    return (
        "no end"
        if days == math.inf
        else f"{rounded(days)} days"
        if days < 1000
        else f"{days:,.0f} days"
    )


def _best(plan: Plan, gpu: GPU, gpus: int, assumptions: Assumptions) -> dict[str, str]:
    """Return the lines about the best setting: what to set, how long it takes, what it costs."""
    best, hours = plan.best, plan.seconds(plan.best) / 3600
    settings: dict[str, str] = {"parallel.kind": best.kind} if gpus > 1 else {}
    settings |= {"train.activation_checkpointing": best.checkpointing}
    settings |= {"train.micro_batch": f"{best.micro_batch}"}
    lines = {
        "best": " ".join(f"--set {name}={value}" for name, value in settings.items()),
        "time": f"{_time(3600 * hours)} for {plan.steps:,} steps, "
        f"{quantity(plan.steps * plan.tokens_per_step)} tokens, "
        f"{plan.flops_per_step * plan.steps:.3g} FLOPs",
        "cost": f"{rounded(hours * gpus)} GPU-hours"
        if hours * gpus < 10
        else f"{hours * gpus:,.0f} GPU-hours",
        "speed": f"{quantity(plan.tokens_per_second)} tokens/s, "
        f"{quantity(plan.tokens_per_second / gpus)} of each GPU",
    }
    if plan.dollars is not None:
        lines["cost"] += f", {plan.dollars:,.0f} dollars at {assumptions.price:g} each"
    if best.network_seconds > best.compute_seconds:
        lines["network"] = (
            f"decides: {rounded(best.network_seconds)} s per step to send, "
            f"{rounded(best.compute_seconds)} s to compute"
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
    parts = ", ".join(f"{name} {byte_size(n)}" for name, n in memory.parts.items() if n)
    return f"{byte_size(memory.total)} of {gpu.memory_gb:g} GB: {parts}"


def _safety(plan: Plan, assumptions: Assumptions) -> dict[str, str]:
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
