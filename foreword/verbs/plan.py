"""`foreword plan`."""

from __future__ import annotations

from dataclasses import KW_ONLY, asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foreword.disk import atomic
from foreword.display.results import Facts, Output, Part, Remark, ResultTable
from foreword.errors import UserError, nearest, quoted_command
from foreword.formatting import byte_size, duration, figure, power, quantity
from foreword.settings.ranges import Flops, Hours
from foreword.verbs._arguments import paths
from foreword.verbs._contract import Flag, PathName, Paths, Verb
from foreword.verbs._plan import OnGpus

if TYPE_CHECKING:
    from foreword.planning.budget_plan import FamilyPlan, Machine
    from foreword.planning.dial import Conditions, Dial
    from foreword.planning.laws import Expectation

HOW_TO_ADD = "; foreword/planning/gpus.toml has them, and takes more"


@dataclass(frozen=True)
class Plan(OnGpus, Verb[Output]):
    """Choose family, size and training for some hours and a text, and say what loss to expect.

        foreword.plan("books/", hours=24, purpose="classify")

    Figures come from the law files (recipes/laws/, or --laws), which name their sources, and from
    the speed of this machine or of --gpus. With --out, the recipe is written for 'pretrain'. With
    --record, the forecasts that runs noted before their first step are shown beside their results.

    Attributes:
        data: text files, folders or globs; or a folder of 'prepare'.
        more: more text, as a shell expands a glob; with --record more runs.
        hours: the budget in hours of training.
        flops: the budget in FLOPs.
        family: encoder, decoder, encoder_decoder or ngram; default: all that serve the purpose.
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
        from foreword.planning.budget_plan import PURPOSES, plan_families
        from foreword.planning.laws import laws

        texts = (*paths(self.data), *paths(self.more))
        if not texts:
            raise UserError("--data: name the text: files, folders or globs")
        if (self.hours is None) == (self.flops is None):
            raise UserError("give --hours, as in --hours 24, or --flops")
        folder = "" if self.laws is None else str(self.laws)
        if self.family is not None and self.family not in laws(folder):
            raise UserError(
                f"--family: there is no '{self.family}'{nearest(self.family, list(laws(folder)))}"
            )
        if self.purpose not in (None, *PURPOSES):
            raise UserError(f"--for: there is no '{self.purpose}'{nearest(self.purpose, PURPOSES)}")
        if self.family is None and self.purpose is None:
            raise UserError(
                "--for: say what the model is for: classify, tag, generate, fill or answer; or "
                "name a --family"
            )
        if self.out is not None:
            atomic.require_writable(Path(self.out), is_folder=False)
        machine = self._machine()
        if self.flops is not None:
            machine = replace(machine, spread=None)
        plans = plan_families(
            texts, machine, self._hours_of, self.purpose or "", self.family, folder
        )
        best = plans[0]
        if self.out is not None:
            atomic.write_text(Path(self.out), self._recipe(best))
        return Output(self._parts(plans, machine, texts), self._content(plans, machine))

    def _machine(self) -> Machine:
        """Return what to train on: this machine, or GPUs of the list."""
        from foreword.planning.budget_plan import Machine
        from foreword.planning.gpus import find_gpu

        if self.gpu is None and self.gpus is None:
            self.refuse(["utilisation"], "requires --gpus or --gpu")
            return Machine.here()
        try:
            name, gpu = find_gpu(self.gpu or "h100")
        except UserError as error:
            raise UserError(f"{error}{HOW_TO_ADD}") from error
        return Machine.of_gpus(name, gpu, self.gpus or 1, self.utilisation)

    def _hours_of(self, hour: Conditions) -> float:
        """Return the hours of the budget, of conditions for an hour."""
        return self.hours if self.hours is not None else (self.flops or 0.0) / hour.flops

    def _recipe(self, plan: FamilyPlan) -> str:
        """Return the recipe with the budget, as TOML."""
        from foreword.train.budget import Budget

        recipe = plan.recipe
        if self.flops is not None and recipe.train.hours is not None:
            train = Budget("flops", self.flops).applied_to(recipe.train)
            recipe = replace(recipe, train=train)
        return recipe.dumps()

    def _parts(
        self, plans: list[FamilyPlan], machine: Machine, texts: tuple[str, ...]
    ) -> list[Part]:
        """Return the plan as people read it."""
        best, parts = plans[0], list[Part]()
        if len(plans) > 1:
            parts.append(ResultTable([_family_row(plan) for plan in plans], "families"))
            parts.append(_why(plans, self.purpose or ""))
        title = best.family if best.dial is None else best.dial.title
        parts.append(ResultTable(self._settings(best, machine), title))
        if best.dial is not None:
            rows = [_change("as given", best.dial, best.dial)]
            rows += [_change(name, made, best.dial) for name, made in best.changes()]
            parts.append(ResultTable(rows, "what more would bring"))
        if self.out is not None:
            command = quoted_command("pretrain", self.out, "--data", *texts, "--out", "RUN")
            parts.append(Facts({"recipe": self.out, "train": command}))
        return parts

    def _settings(self, plan: FamilyPlan, machine: Machine) -> list[dict[str, str]]:
        """Return the rows of the plan: setting, value, where it is from."""
        made, law = plan.dial, plan.law
        interval = _interval(plan.expected)
        loss = "not known" if plan.expected.value is None else (
            f"{figure(plan.expected.value)} {plan.expected.unit}, {interval}")  # fmt: skip
        rows = [("expected loss", loss, f"{plan.expected.source}: {plan.expected.why}")]
        parts = {"fit": plan.expected.fit, "seed": plan.expected.seed,
                 "machine": plan.expected.machine}  # fmt: skip
        missing = {
            "fit": "",
            "seed": "no noise of seeds is in the law file",
            "machine": "the budget is in FLOPs",
        }
        if plan.expected.value is not None:
            value = plan.expected.value
            rows += [
                (f"  of which {name}",
                 "not counted" if part is None else
                 f"-{figure(value - part[0], 2)} +{figure(part[1] - value, 2)}",
                 missing[name] if part is None else "")
                for name, part in parts.items()
            ]  # fmt: skip
        if made is None:
            rows.append(("recipe", law.small, law.file))
            return [dict(zip(("setting", "value", "from"), row, strict=True)) for row in rows]
        hours = made.conditions.hours
        tokens = f"{quantity(made.tokens)}, {made.tokens / made.conditions.text_tokens:.2g} epochs"
        of_size = law.file if law.law is not None else law.sources.get("size", law.file)
        rows += [
            ("parameters", quantity(made.size.parameters), of_size),
            ("tokens", tokens, f"{law.file}: {law.speed:g} of the speed of products"),
            ("speed", f"{power(machine.speed)} FLOP/s", machine.source),
            ("FLOPs", power(made.conditions.flops), "hours, speed and its share"),
        ]
        for choice in made.choices:
            shown = choice.value if isinstance(choice.value, str) else f"{choice.value:,.6g}"
            rows.append((choice.setting, shown, choice.reason))
        seconds = (
            made.tokens * made.size.flops_per_token / made.conditions.training_flops_per_second
        )
        rows.append(
            ("memory", byte_size(plan.memory), "20 bytes per parameter; activations beside it")
        )
        rows.append(("time", duration(seconds), f"of {hours:g} h"))
        if self.price is not None:
            cost = self.price * (self.gpus or 1) * seconds / 3600
            rows.append(("cost", f"{cost:,.2f} dollars", f"--price {self.price:g} an hour each"))
        return [dict(zip(("setting", "value", "from"), row, strict=True)) for row in rows]

    def _content(self, plans: list[FamilyPlan], machine: Machine) -> dict[str, Any]:
        """Return the plan as plain values."""
        best = plans[0]
        changes = {name: made.facts | {"forecast": made.expected.figures()}
                   for name, made in best.changes()}  # fmt: skip
        return {
            "family": best.family,
            "forecast": best.expected.figures(),
            "dial": None if best.dial is None else best.dial.facts,
            "machine": asdict(machine),
            "families": {plan.family: plan.expected.figures() for plan in plans},
            "changes": changes,
            "recipe": None if self.out is None else str(self.out),
        }


def _interval(expected: Expectation) -> str:
    if expected.interval is None:
        return ""
    low, high = expected.interval
    return f"{figure(low)} to {figure(high)}"


def _family_row(plan: FamilyPlan) -> dict[str, str]:
    value, size = plan.expected.value, plan.dial.size if plan.dial else None
    return {
        "family": plan.family,
        "loss": "" if value is None else figure(value),
        "interval": _interval(plan.expected),
        "unit": plan.expected.unit,
        "parameters": "" if size is None else quantity(size.parameters),
        "tokens": "" if plan.dial is None else quantity(plan.dial.tokens),
        "what is known": plan.expected.source if value is not None else plan.expected.why,
    }


def _why(plans: list[FamilyPlan], purpose: str) -> Remark:
    """Return a line about the choice."""
    best, others = plans[0], plans[1:]
    if len({plan.expected.unit for plan in plans}) > 1 or best.rank < others[0].rank:
        return Remark(f"{best.family}: the first choice to {purpose}")
    if unknown := [plan.family for plan in plans if plan.expected.value is None]:
        return Remark(f"{best.family}; the loss of {unknown[0]} is not known here")
    if best.dial is None:
        return Remark(
            f"{best.family} suffices: counting, in seconds, is expected to reach a lower loss than "
            f"{others[0].family} in this budget"
        )
    return Remark(f"{best.family}: the lower expected loss")


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
        "epochs": f"{made.tokens / made.conditions.text_tokens:.2g}",
        "loss": made.expected.why if value is None else figure(value),
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
