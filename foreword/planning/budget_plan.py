"""`foreword plan`: the families that serve a purpose in some hours, and what more would bring."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from foreword.errors import UserError
from foreword.formatting import power, quantity
from foreword.planning.conditions import dial_of_text, machine, text_bytes
from foreword.planning.dial import Conditions, Dial, dial, expected_loss
from foreword.planning.gpus import GPU
from foreword.planning.laws import Amounts, Expectation, FamilyLaw, laws, sized_families
from foreword.planning.memory import PROGRAM
from foreword.planning.timed import STEP_SECONDS, tokens_per_second
from foreword.runs.counted import row_bytes
from foreword.runs.recipe import Recipe, load_recipe
from foreword.runs.sizes import count_state, least_memory
from foreword.train.budget import Budget
from foreword.train.device import choose_device, choose_precision

LEAST_HOURS, MOST_HOURS = 1 / 60, 24 * 365.0
MORE_BYTES = 10e6
ALIKE = 1.1  # sizes whose cost differs by less than this factor train equally fast


@dataclass(frozen=True)
class Machine:
    """What to train on.

    Attributes:
        speed: FLOP/s of matrix products.
        memory: bytes.
        source: where the speed is from.
        share: share of the speed that training reaches; None for the family's own.
        error: relative error of `share`; None for the family's own.
        is_here: whether it is this machine, on which steps can be timed.
        gpus: how many share a step.
        has_bf16: whether it multiplies bf16; None for this machine, which is asked.
    """

    speed: float
    memory: int
    source: str
    share: float | None = None
    error: float | None = None
    is_here: bool = False
    gpus: int = 1
    has_bf16: bool | None = None

    @classmethod
    def here(cls) -> Machine:
        """Return this machine, measured."""
        family, law = next(iter(sized_families().items()))
        found = machine(family, 1.0, load_recipe(law.small))
        return cls(found.flops_per_second, found.memory, "measured here", is_here=True)

    @classmethod
    def of_gpus(cls, name: str, gpu: GPU, gpus: int, share: float | None) -> Machine:
        """Return some GPUs of the list, each of which holds the whole model."""
        rules = next(iter(laws().values())).rules
        speed, memory = gpus * gpu.flops_per_second, round(1e9 * gpu.memory_gb)
        source = f"{gpus:,} x {name}: {gpu.source}"
        share, has_bf16 = share or rules.gpu_share, bool(gpu.bf16_tflops)
        return cls(speed, memory, source, share, rules.gpu_error, gpus=gpus, has_bf16=has_bf16)

    def conditions(self, family: str, folder: str) -> Conditions:
        """Return the conditions of a family for an hour, which yet lack the text."""
        speed = self.speed
        if self.share is not None:
            speed *= self.share / sized_families(folder)[family].speed
        return Conditions(family, 1.0, speed, 1e15, self.memory, laws=folder)

    def timed(self, made: Dial) -> tuple[Conditions, float, str]:
        """Return conditions of a dial with the speed that its recipe has here, timed.

        Returns:
            The conditions, the relative error of the speed, and where it is from. Without a machine
            to time on, or for steps that take too long, the speed is a share of that of products.
        """
        given, law, recipe = made.conditions, made.conditions.law, made.recipe()
        step = recipe.rows_per_step * recipe.packing.length * made.size.flops_per_token
        share = law.speed if self.share is None else self.share
        error = law.speed_error if self.error is None else self.error
        is_short = step < 2 * STEP_SECONDS * given.training_flops_per_second
        timed = tokens_per_second(recipe) if self.is_here and is_short else None
        if timed is None:
            file = law.sources["speed"] if self.share is None else law.sources["gpu_share"]
            return given, error, f"{share:g} of that of products ({file}), {self.source}"
        tokens, error = timed
        products = tokens * made.size.flops_per_token / law.speed
        why = f"timed here on steps of {made.size.d_model} x {made.size.layers}"
        return replace(given, flops_per_second=products), error, why


@dataclass(frozen=True)
class FamilyPlan:
    """What a family would do in the hours.

    Attributes:
        family: its name.
        score: what one of its models scored at the purpose, and half of the 95 % interval; () if
            that was not measured, or the loss is what counts.
        expected: the loss.
        recipe: what would be trained.
        law: the file of the family.
        dial: how it was chosen; None of counted tables.
        error: relative error of the speed; None if the budget does not depend on it.
        speed: where the speed is from.
    """

    family: str
    score: tuple[float, ...]
    expected: Expectation
    recipe: Recipe
    law: FamilyLaw
    dial: Dial | None = None
    error: float | None = None
    speed: str = ""

    def memory(self, machine: Machine) -> int:
        """Return the bytes that training holds, about, with all rows of a step at once."""
        recipe, train = self.recipe, self.recipe.train
        dtype = choose_precision(train.precision, choose_device(train.device, "train.device"))
        if machine.has_bf16 is not None:
            dtype = torch.bfloat16 if machine.has_bf16 else torch.float32
        parts = least_memory(recipe) | {"optimizer": 4 * count_state(recipe)}
        rows = -(-recipe.rows_per_step // machine.gpus)
        return PROGRAM + sum(parts.values()) + row_bytes(recipe, dtype) * (rows - 1)

    def changes(self) -> Iterator[tuple[str, Dial]]:
        """Yield what half and double the budget, and more text, would lead to."""
        if self.dial is None:
            return
        given = self.dial.conditions
        unit = "FLOPs" if given.is_in_flops else "hours"
        for name, factor in ((f"half the {unit}", 0.5), (f"double the {unit}", 2.0)):
            yield name, with_error(dial(replace(given, hours=factor * given.hours)), self.error)
        more = replace(given, text_bytes=given.text_bytes + MORE_BYTES)
        yield "10 MB more text", with_error(dial(more), self.error)


def with_error(made: Dial, error: float | None) -> Dial:
    """Return a dial whose expected loss has an interval for the speed of the machine."""
    return replace(made, expected=expected_loss(made.conditions, made.size, error))


def hours_to_reach(plan: FamilyPlan, loss: float) -> float | None:
    """Return the hours in which a network is expected to have a loss, about; None if in none."""
    assert plan.dial is not None
    hours = plan.dial.conditions.hours
    while (hours := 1.25 * hours) <= MOST_HOURS:
        made = dial(replace(plan.dial.conditions, hours=hours))
        if made.expected.value is not None and made.expected.value < loss:
            return hours
        if made.choices[-1].setting == "train.epochs":
            return None
    return None


def plan_families(
    texts: Sequence[str],
    trained_on: Machine,
    budget: Budget,
    purpose: str,
    family: str | None,
    folder: str = "",
) -> list[FamilyPlan]:
    """Return the plans of the families, the one to choose first.

    Args:
        texts: files, folders, globs; or a folder of prepared text.
        trained_on: the machine.
        budget: of hours or FLOPs.
        purpose: what the model is for.
        family: the only family to plan; None for all that serve the purpose.
        folder: law files of the user's own; "" for none.

    Raises:
        UserError: there is no such text or family, it is too little for a row, or a step has fewer
            rows than there are GPUs.
    """
    known = laws(folder)
    serving = {name: law for name, law in known.items() if purpose in law.scores}
    names = [name for name, law in serving.items() if law.has_losses or law.scores[purpose]]
    if family and purpose and family not in serving:
        raise UserError(f"--family: {family} does not {purpose}; {', '.join(names)} do")
    plans = []
    for name in [family] if family else names:
        law = known[name]
        score, recipe = law.scores.get(purpose, ()), load_recipe(law.small)
        if not law.large:
            size = text_bytes(texts, recipe.read)
            vocab = recipe.tokenizer.vocab
            counted = Amounts(0.0, 0, 0, 1.0, vocab, law.rules.tokens(size, vocab), size)
            plans.append(FamilyPlan(name, score, law.expect(counted), recipe, law))
            continue
        hour = replace(trained_on.conditions(name, folder), purpose=purpose)
        made = dial_of_text(_with_budget(hour, budget), texts)
        _require_row(made)
        # The speed depends on the size, and the size on the speed.
        for _ in range(2):
            before = made.size
            conditions, error, speed = trained_on.timed(made)
            made = dial(_with_budget(replace(conditions, hours=1.0), budget))
            ratio = made.size.flops_per_token / before.flops_per_token
            if 1 / ALIKE < ratio < ALIKE:
                break
        if made.rows < trained_on.gpus:
            raise UserError(
                f"--gpus: a step of {made.rows:,} rows ({name}) cannot be divided among "
                f"{trained_on.gpus:,} GPUs; plan for {made.rows:,} or fewer"
            )
        known_error = error if budget.unit == "hours" else None
        made = with_error(made, known_error)
        plan = FamilyPlan(name, score, made.expected, made.recipe(), law, made, known_error, speed)
        plans.append(plan)
    return _ordered(plans)


def _with_budget(hour: Conditions, budget: Budget) -> Conditions:
    """Return conditions for an hour with a budget in place of it, if a plan can be made for it."""
    if budget.unit == "flops":
        if (hours := budget.amount / hour.flops) > MOST_HOURS:
            raise UserError(
                f"--flops: {power(budget.amount)} FLOPs would take {quantity(hours)} hours at "
                f"{power(hour.training_flops_per_second)} FLOP/s; a plan is for at most a year "
                "(8,760)"
            )
        return replace(hour, hours=hours, is_in_flops=True)
    hours = budget.amount
    if not LEAST_HOURS <= hours <= MOST_HOURS:
        raise UserError(f"{hours:g} hours: a plan is for a minute (0.017 hours) to a year (8,760)")
    return replace(hour, hours=hours)


def _require_row(made: Dial) -> None:
    tokens, length = made.text_tokens, made.size.length
    if made.tokens < length <= tokens:
        raise UserError(
            f"the budget is enough for {made.tokens:,.0f} tokens of the smallest model, less than "
            f"one row of {length:,}; give more"
        )
    if tokens < length:
        raise UserError(
            f"--data: the text has about {tokens:,.0f} tokens, less than one row of {length:,}; "
            "give more text"
        )


def _ordered(plans: list[FamilyPlan]) -> list[FamilyPlan]:
    """Return plans by what they scored at the purpose; those without scores by the loss.

    Counts suffice where they are known to: a network whose loss is not known comes before them, and
    after those whose loss is known.
    """
    is_one_unit = len({plan.expected.unit for plan in plans}) == 1
    known = [plan.expected.value for plan in plans if plan.dial is not None]
    last_network = max((value for value in known if value is not None), default=-math.inf)

    def key(plan: FamilyPlan) -> tuple[float, float, bool]:
        value = plan.expected.value
        if is_unknown := value is None:
            value = math.inf if plan.dial is None else last_network
        return -plan.score[0] if plan.score else 0.0, value if is_one_unit else 0.0, is_unknown

    return sorted(plans, key=key)
