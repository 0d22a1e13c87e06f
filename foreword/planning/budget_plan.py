"""`foreword plan`: the families that serve a purpose in some hours, and what more would bring."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from foreword.errors import UserError
from foreword.planning.conditions import dial_of_text, machine, text_bytes
from foreword.planning.dial import BYTES_PER_PARAMETER, Conditions, Dial, dial
from foreword.planning.dial_sizes import BYTES_PER_TOKEN
from foreword.planning.gpus import GPU
from foreword.planning.laws import Amounts, Expectation, FamilyLaw, laws, sized_families
from foreword.runs.recipe import Recipe, load_recipe

PURPOSES = ("classify", "tag", "generate", "fill", "answer")
LEAST_HOURS, MOST_HOURS = 1 / 60, 24 * 365.0
MORE_BYTES = 10e6
TIMES = 3  # that the speed of this machine is measured


@dataclass(frozen=True)
class Machine:
    """What to train on.

    Attributes:
        speed: FLOP/s of matrix products.
        memory: bytes.
        share: share of the speed that training reaches; None for the family's own.
        spread: half the range of repeated measurements of the speed, relative; None if the budget
            does not depend on it.
        source: where the speed is from.
    """

    speed: float
    memory: int
    share: float | None
    spread: float | None
    source: str

    @classmethod
    def here(cls) -> Machine:
        """Return this machine, measured a few times."""
        recipe = load_recipe(next(iter(sized_families().values())).small)
        timed = [machine("encoder", 1.0, recipe) for _ in range(TIMES)]
        speeds = [each.flops_per_second for each in timed]
        spread = (max(speeds) - min(speeds)) / 2 / median(speeds)
        return cls(median(speeds), timed[0].memory, None, spread, f"measured here {TIMES} times")

    @classmethod
    def of_gpus(cls, name: str, gpu: GPU, gpus: int, share: float | None) -> Machine:
        """Return some GPUs of the list, each of which holds the whole model."""
        speed, memory = gpus * gpu.flops_per_second, round(1e9 * gpu.memory_gb)
        return cls(speed, memory, share, 0.0, f"{gpus} x {name}: {gpu.source}")

    def conditions(self, family: str, hours: float, folder: str) -> Conditions:
        """Return the conditions of a family, which yet lack the text."""
        speed = self.speed
        if self.share is not None:
            speed *= self.share / sized_families(folder)[family].speed
        return Conditions(family, hours, speed, 1e15, self.memory, laws=folder)


@dataclass(frozen=True)
class FamilyPlan:
    """What a family would do in the hours.

    Attributes:
        family: its name.
        rank: of the family for the purpose; 1 is the first choice.
        expected: the loss.
        recipe: what would be trained.
        dial: how it was chosen; None of counted tables.
        law: the file of the family.
        spread: of the machine's speed.
    """

    family: str
    rank: int
    expected: Expectation
    recipe: Recipe
    dial: Dial | None
    law: FamilyLaw
    spread: float | None

    @property
    def memory(self) -> int:
        """Bytes of weights, gradients and optimizer, about."""
        return 0 if self.dial is None else self.dial.size.parameters * BYTES_PER_PARAMETER

    def changes(self) -> Iterator[tuple[str, Dial]]:
        """Yield what half and double the hours, and more text, would lead to."""
        if self.dial is None:
            return
        given = self.dial.conditions
        for name, factor in (("half the hours", 0.5), ("double the hours", 2.0)):
            yield name, with_spread(dial(replace(given, hours=factor * given.hours)), self.spread)
        more = replace(given, text_bytes=given.text_bytes + MORE_BYTES)
        yield "10 MB more text", with_spread(dial(more), self.spread)


def with_spread(made: Dial, spread: float | None) -> Dial:
    """Return a dial whose expected loss has an interval for the speed of the machine."""
    return replace(made, expected=made.conditions.law.expect(made.amounts, spread))


def plan_families(
    texts: Sequence[str],
    trained_on: Machine,
    hours_of: Callable[[Conditions], float],
    purpose: str,
    family: str | None,
    folder: str = "",
) -> list[FamilyPlan]:
    """Return the plans of the families, the one to choose first.

    Args:
        texts: files, folders, globs; or a folder of prepared text.
        trained_on: the machine.
        hours_of: the budget in hours, of conditions for an hour.
        purpose: what the model is for.
        family: the only family to plan; None for all that serve the purpose.
        folder: law files of the user's own; "" for none.

    Raises:
        UserError: there is no such text or family, or it is too little for a row.
    """
    known = laws(folder)
    names = [family] if family else [name for name in known if purpose in known[name].purposes]
    plans, size = [], 0.0
    for name in names:
        law, rank = known[name], known[name].purposes.get(purpose, 9)
        if not law.large:
            recipe = load_recipe(law.small)
            size = size or text_bytes(texts, recipe.read)
            tokens = size / BYTES_PER_TOKEN
            counted = law.expect(Amounts(0.0, 0, 0, 1.0, recipe.tokenizer.vocab, tokens, size))
            plans.append(FamilyPlan(name, rank, counted, recipe, None, law, None))
            continue
        hour = trained_on.conditions(name, 1.0, folder)
        hours = hours_of(hour)
        if not LEAST_HOURS <= hours <= MOST_HOURS:
            raise UserError(
                f"{hours:.3g} hours: a plan is for a minute (0.017 hours) to a year (8,760)"
            )
        made = dial_of_text(replace(hour, hours=hours), texts)
        _require_row(made)
        made = with_spread(made, trained_on.spread)
        spread = trained_on.spread
        plans.append(FamilyPlan(name, rank, made.expected, made.recipe(), made, law, spread))
    return _ordered(plans)


def _require_row(made: Dial) -> None:
    tokens, length = made.conditions.text_tokens, made.size.length
    if tokens < length:
        raise UserError(
            f"--data: the text has about {tokens:,.0f} tokens, less than one row of {length:,}; "
            "give more text"
        )


def _ordered(plans: list[FamilyPlan]) -> list[FamilyPlan]:
    """Return plans by rank; those of one rank and unit by the loss.

    Counts suffice where they are known to: a network whose loss is not known comes first.
    """
    is_one_unit = len({plan.expected.unit for plan in plans}) == 1

    def key(plan: FamilyPlan) -> tuple[int, float]:
        value = plan.expected.value
        if value is None:
            value = math.inf if plan.dial is None else -math.inf
        return plan.rank, value if is_one_unit else 0.0

    return sorted(plans, key=key)
