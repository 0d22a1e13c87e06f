"""`foreword plan`."""

from __future__ import annotations

import math
import shlex
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.disk import atomic
from foreword.display.results import Facts, Output, Part, Remark, ResultTable
from foreword.errors import UserError, nearest
from foreword.formatting import byte_size, duration, figure, power, quantity
from foreword.settings.ranges import Flops, Hours
from foreword.verbs._arguments import paths
from foreword.verbs._contract import Flag, PathName, Paths, Verb
from foreword.verbs._plan import OnGpus

if TYPE_CHECKING:
    from foreword.planning.budget_plan import FamilyPlan, Machine
    from foreword.planning.dial import Dial
    from foreword.planning.laws import Expectation
    from foreword.train.budget import Budget


@dataclass(frozen=True)
class Plan(OnGpus, Verb[Output]):
    """Choose family, size and training for some hours and a text, and say what loss to expect.

        foreword.plan("books/", hours=24, purpose="classify")

    Requires --data, and --hours or --flops. Figures come from the law files (recipes/laws/, or
    --laws), which name their sources, and from the speed of a few steps on this machine, or of
    --gpus. --out writes the recipe, for 'pretrain'. --record RUNS instead shows the losses that
    plans forecast for runs, beside their results.

    Attributes:
        data: text files, folders or globs; or a folder of 'prepare'.
        more: more text, from a glob that the shell expanded; with --record more runs.
        hours: the budget in hours of training.
        flops: the budget in FLOPs.
        family: family to plan: encoder, decoder, encoder_decoder, lstm or ngram; default: all that
            serve the purpose of --for.
        purpose: what the model is for: classify, tag, generate, fill or answer.
        laws: folder with law files of your own, such as 'scale fit' writes.
        out: recipe file to write.
        record: runs, or folders of them, whose forecasts are compared with their results.
    """

    data: Paths | None = None
    _: KW_ONLY
    more: Annotated[Paths, Flag(is_argument=True, is_command_only=True, takes=list[str])] = ()
    hours: Hours | None = None
    flops: Flops | None = None
    family: str | None = None
    purpose: Annotated[str | None, Flag(("--for",))] = None
    laws: PathName | None = None
    out: PathName | None = None
    record: Paths | None = None

    def __call__(self) -> Output:
        if self.record is not None:
            names = ("data", "hours", "flops", "family", "purpose", "laws", "out", "gpus", "gpu")
            self.refuse(names, "cannot be combined with --record")
            return _record((*paths(self.record), *paths(self.more)))
        from foreword.planning.budget_plan import plan_families
        from foreword.planning.laws import laws

        texts = (*paths(self.data), *paths(self.more))
        if not texts:
            raise UserError("--data: name the text: files, folders or globs")
        budget = self._budget()
        folder = "" if self.laws is None else str(self.laws)
        known = laws(folder)
        purposes = list(next(iter(known.values())).purposes)
        if self.family is not None and self.family not in known:
            raise UserError(
                f"--family: there is no '{self.family}'{nearest(self.family, list(known))}"
            )
        if self.purpose is not None and self.purpose not in purposes:
            raise UserError(f"--for: there is no '{self.purpose}'{nearest(self.purpose, purposes)}")
        if self.family is None and self.purpose is None:
            raise UserError(
                f"--for: say what the model is for, one of {', '.join(purposes)}; or name a "
                "--family"
            )
        if self.out is not None:
            atomic.require_writable(Path(self.out), is_folder=False)
        machine = self._machine()
        purpose = self.purpose or ""
        plans = plan_families(texts, machine, budget, purpose, self.family, folder)
        if self.out is not None:
            atomic.write_text(Path(self.out), plans[0].recipe.dumps())
        return Output(self._parts(plans, texts, machine), self._content(plans, machine))

    def _budget(self) -> Budget:
        from foreword.train.budget import Budget

        if self.hours is not None:
            self.refuse(["flops"], "cannot be combined with --hours")
            return Budget("hours", self.hours)
        if self.flops is None:
            raise UserError("give --hours, as in --hours 24, or --flops")
        return Budget("flops", self.flops)

    def _machine(self) -> Machine:
        """Return what to train on: this machine, or GPUs of the list."""
        from foreword.planning.budget_plan import Machine
        from foreword.planning.gpus import find_gpu

        if self.gpu is None and self.gpus is None:
            self.refuse(["utilisation"], "requires --gpus or --gpu")
            return Machine.here()
        name, gpu = find_gpu("h100" if self.gpu is None else self.gpu)
        return Machine.of_gpus(name, gpu, self.gpus or 1, self.utilisation)

    def _dollars(self, made: Dial) -> float | None:
        return None if self.price is None else self.price * (self.gpus or 1) * made.seconds / 3600

    def _parts(
        self, plans: list[FamilyPlan], texts: tuple[str, ...], machine: Machine
    ) -> list[Part]:
        best, parts = plans[0], list[Part]()
        if len(plans) > 1:
            rows = [_family_row(plan) for plan in plans]
            parts.append(ResultTable(rows, f"families to {self.purpose}"))
            parts.append(Remark(_why(plans, self.purpose or "")))
        if best.dial is not None and best.dial.counting:
            parts.append(Remark(best.dial.counting))
        title = best.family if best.dial is None else best.dial.title
        parts.append(ResultTable(self._settings(best, machine), title))
        if best.dial is not None:
            rows = [_change("as given", best.dial, best.dial)]
            rows += [_change(name, made, best.dial) for name, made in best.changes()]
            known = [name for name in rows[0] if any(row[name] for row in rows)]
            rows = [{name: row[name] for name in known} for row in rows]
            parts.append(ResultTable(rows, "what more would bring"))
        if self.out is None:
            return [*parts, Remark("--out plan.toml writes the recipe, which 'pretrain' trains")]
        words = ("foreword", "pretrain", str(self.out), "--data", *texts, "--out", "RUN")
        return [*parts, Facts({"recipe": self.out, "train": shlex.join(words)})]

    def _settings(self, plan: FamilyPlan, machine: Machine) -> list[dict[str, str]]:
        """Return the rows of the plan: setting, value, where it is from."""
        made, law, expected = plan.dial, plan.law, plan.expected
        rows = [("expected loss", _loss(expected), expected.why)]
        if expected.value is not None:
            rows = [("expected loss", _loss(expected), f"{expected.source}: {expected.why}")]
            missing = {"seed": "its noise was not measured", "machine": "the loss is not of a time"}
            parts = {"fit": expected.fit, "seed": expected.seed, "machine": expected.machine}
            for name, part in parts.items():
                shown = "not counted" if part is None else (
                    f"-{figure(expected.value - part[0], 2)} "
                    f"+{figure(part[1] - expected.value, 2)}")  # fmt: skip
                rows.append((f"  by {name}", shown, missing.get(name, "") if part is None else ""))
        if made is None:
            rows.append(("recipe", law.small, law.file))
            return [dict(zip(("setting", "value", "from"), row, strict=True)) for row in rows]
        given, memory = made.conditions, plan.memory(machine)
        whole = "at this speed" if given.is_in_flops else f"of {duration(3600 * given.hours)}"
        if made.choices[-1].setting == "train.epochs":
            whole += f": more than {law.rules.most_epochs:g} epochs add nothing; more text would"
        if made.seconds > 1.05 * made.computing:
            whole += "; steps of so few tokens keep the device waiting"
            enough = math.ceil(machine.gpus * made.computing / made.seconds)
            whole += f": {enough:,} would be as fast as {machine.gpus:,}" * (enough < machine.gpus)
        counted = "counted, with all rows of a step at once; 'foreword check' measures it"
        if memory > machine.memory:
            counted = f"of {byte_size(machine.memory)}, so that fewer rows are computed at once"
        rows += [
            ("parameters", quantity(made.size.parameters),
             f"{made.size.layers} layers of {made.size.d_model}"),
            ("tokens", f"{quantity(made.tokens)}, {made.epochs:.2g} epochs",
             f"about {quantity(made.text_tokens)} tokens of text"),
            ("time", duration(made.seconds), whole),
            ("speed", f"{power(given.training_flops_per_second)} FLOP/s", plan.speed),
            ("FLOPs", power(made.flops), "tokens and size"),
            ("memory", f"at least {byte_size(memory)}", counted),
        ]  # fmt: skip
        if (cost := self._dollars(made)) is not None:
            rows.append(("cost", f"{cost:,.2f} dollars", f"--price {self.price:g} an hour each"))
        for choice in made.choices:
            rows.append((choice.setting, _shown(choice.value), choice.reason))
        return [dict(zip(("setting", "value", "from"), row, strict=True)) for row in rows]

    def _content(self, plans: list[FamilyPlan], machine: Machine) -> dict[str, Any]:
        best = plans[0]
        changes = {name: made.facts | {"forecast": made.expected.figures()}
                   for name, made in best.changes()}  # fmt: skip
        made = best.dial
        return {
            "family": best.family,
            "forecast": best.expected.figures(),
            "dial": None if made is None else made.facts,
            "memory": None if made is None else best.memory(machine),
            "dollars": None if made is None else self._dollars(made),
            "machine": asdict(machine),
            "families": {
                plan.family: plan.expected.figures() | {"score": plan.score} | _amounts(plan)
                for plan in plans
            },
            "changes": changes,
            "recipe": None if self.out is None else str(self.out),
        }


def _amounts(plan: FamilyPlan) -> dict[str, float]:
    facts = {} if plan.dial is None else plan.dial.facts
    return {name: facts[name] for name in ("parameters", "tokens", "seconds") if facts}


def _interval(expected: Expectation) -> str:
    if expected.interval is None:
        return ""
    low, high = expected.interval
    return f"{figure(low)} to {figure(high)}"


def _loss(expected: Expectation) -> str:
    if expected.value is None:
        return "not known"
    return f"{figure(expected.value)} {expected.unit}, {_interval(expected)}"


def _shown(value: Any) -> str:
    """Return the value of a choice: a name, a number, or stages."""
    if isinstance(value, list):
        return "; ".join(f"{one['objective']} for {one['share']:.0%}" for one in value)
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _score(plan: FamilyPlan) -> str:
    return "{:.3f} ± {:.3f}".format(*plan.score) if plan.score else ""


def _family_row(plan: FamilyPlan) -> dict[str, str]:
    made = plan.dial
    row = {
        "family": plan.family,
        "expected loss": _loss(plan.expected),
        "parameters": "" if made is None else quantity(made.size.parameters),
        "tokens": "" if made is None else quantity(made.tokens),
        "time": "seconds" if made is None else duration(made.seconds),
    }
    return {**row, "score": _score(plan)} if plan.score else row


def _why(plans: list[FamilyPlan], purpose: str) -> str:
    from foreword.planning.budget_plan import hours_to_reach

    best, law = plans[0], plans[0].law
    others = [plan for plan in plans[1:] if plan.score]
    if best.score:
        apart = [
            plan.family for plan in others
            if best.score[0] - plan.score[0] > math.hypot(best.score[1], plan.score[1])
        ]  # fmt: skip
        line = f"{best.family}: the highest score of models of one budget, {law.purposes[purpose]} "
        line += f"({law.sources['scores']})"
        if len(apart) < len(others):
            near = [plan.family for plan in others if plan.family not in apart]
            line += f"; it does not tell it from {' and '.join(near)}"
        return f"{line}. Losses of different units do not compare"
    if unknown := [plan.family for plan in plans if plan.expected.value is None]:
        return f"{best.family}; the loss of {' and '.join(unknown)} is not known here"
    if best.dial is None:
        line = f"{best.family} suffices: counting, in seconds, is expected to reach a lower loss "
        line += f"than {plans[1].family} in this budget"
        hours = hours_to_reach(plans[1], best.expected.value or 0.0)
        more = "no time here, with this text, is expected to change that"
        if hours is not None:
            more = f"that would take it about {hours:,.2g} hours"
        return f"{line}; {more} (--family {plans[1].family} plans it)"
    ends, next_ends = best.expected.interval, plans[1].expected.interval
    overlap = "; the intervals overlap" if ends and next_ends and ends[1] > next_ends[0] else ""
    return f"{best.family}: the lowest expected loss{overlap}"


def _change(name: str, made: Dial, given: Dial) -> dict[str, str]:
    """Return the row of what other hours or more text lead to."""
    value, before = made.expected.value, given.expected.value
    difference = ""
    if value is not None and before is not None and made is not given:
        difference = f"{value - before:+.3f}"
    return {
        "change": name,
        "parameters": quantity(made.size.parameters),
        "tokens": quantity(made.tokens),
        "epochs": f"{made.epochs:.2g}",
        "time": duration(made.seconds),
        "expected loss": "not known" if value is None else figure(value),
        "interval": _interval(made.expected),
        "difference": difference,
    }


def _record(runs: tuple[str, ...]) -> Output:
    """Return forecasts beside results, and how many of the results lie in their intervals."""
    from foreword.planning.forecast import records

    found = records(runs)
    if not found:
        raise UserError(
            "--record: none of these runs has a forecast; 'foreword pretrain' notes one where the "
            "law files have losses for the like"
        )
    done = [record for record in found if record.is_inside is not None]
    inside = sum(bool(record.is_inside) for record in done)
    rows = [
        {
            "run": record.run,
            "unit": record.unit,
            "forecast": figure(record.forecast),
            "interval": f"{figure(record.low)} to {figure(record.high)}",
            "result": "" if record.result is None else figure(record.result),
            "inside": "" if record.is_inside is None else record.is_inside,
        }
        for record in found
    ]
    coverage = inside / len(done) if done else None
    shown = f"{inside} of {len(done)} results lie in their interval" if done else None
    content = {"runs": [asdict(r) | {"inside": r.is_inside} for r in found], "coverage": coverage}
    return Output([ResultTable(rows, "forecast and result"), Facts({"coverage": shown})], content)
