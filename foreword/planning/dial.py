"""The dial: from hours, speed and text to the settings of a recipe, by pure rules.

    dial(Conditions("decoder", hours=1, flops_per_second=3.5e11, text_bytes=146e6))

It starts from a small recipe of the family, whose numbers were measured; the rules say how each
changes with the budget and the text. Their figures are in `recipes/laws/`; docs/dial.md has the
evidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from foreword.formatting import byte_size, power
from foreword.nn.model import neural_settings
from foreword.planning.dial_sizes import ModelSize, sizes
from foreword.planning.laws import Amounts, Expectation, FamilyLaw, laws, sized_families
from foreword.runs.recipe import Recipe, load_recipe
from foreword.settings import config

FAMILIES = sized_families()
COUNTED = "ngram"  # the family of tables


@dataclass(frozen=True)
class Conditions:
    """All that the rules depend on.

    Attributes:
        family: a key of `FAMILIES`.
        hours: the budget.
        flops_per_second: speed of matrix products.
        text_bytes: the training text as UTF-8.
        memory: bytes of the device.
        vocab: the vocabulary if it is given, by a tokenizer or by what the text needs.
        vocab_reason: why it is given.
        document_tokens: tokens of the median document, and of the longest but 5 %, about; None if
            they are not known.
        laws: a folder with files that take the place of those of `recipes/laws/`; "" for none.
        purpose: what the model is for; "" for any.
        is_in_flops: whether the budget was given in FLOPs, which take the hours.
        bytes_per_token: of a given tokenizer; 0 for that of the rules.
    """

    family: str
    hours: float
    flops_per_second: float
    text_bytes: float
    memory: int = 1 << 60
    vocab: int | None = None
    vocab_reason: str = ""
    document_tokens: tuple[float, float] | None = None
    laws: str = ""
    purpose: str = ""
    is_in_flops: bool = False
    bytes_per_token: float = 0.0

    @property
    def law(self) -> FamilyLaw:
        """The file of the family."""
        return sized_families(self.laws)[self.family]

    @property
    def longest_document(self) -> float:
        """Tokens of the longest documents but 5 %, about."""
        return math.inf if self.document_tokens is None else self.document_tokens[1]

    @property
    def training_flops_per_second(self) -> float:
        """Speed of training, about."""
        return self.flops_per_second * self.law.speed

    @property
    def flops(self) -> float:
        """FLOPs of the budget, about."""
        return self.hours * 3600 * self.training_flops_per_second

    def text_tokens(self, vocab: int) -> float:
        """Return the tokens of the text, about, by a tokenizer of `vocab` tokens."""
        if self.bytes_per_token:
            return max(1.0, self.text_bytes / self.bytes_per_token)
        return self.law.rules.tokens(self.text_bytes, vocab)


@dataclass(frozen=True)
class Choice:
    """A setting of the recipe, its value and the reason for it."""

    setting: str
    value: Any
    reason: str


@dataclass(frozen=True)
class Dial:
    """What the conditions lead to.

    Attributes:
        conditions: all that it depends on.
        size: the size of the model.
        tokens: tokens that the run reads, about.
        choices: the settings.
        expected: what is known of the loss.
    """

    conditions: Conditions
    size: ModelSize
    tokens: float
    choices: tuple[Choice, ...]
    expected: Expectation

    def recipe(self, assignments: Sequence[str] = ()) -> Recipe:
        """Return the recipe; `--set` assignments overrule the choices.

        Raises:
            UserError: an assignment is wrong.
        """
        table: dict[str, Any] = {"description": self.title}
        for choice in self.choices:
            value = choice.value
            for name in reversed(choice.setting.split(".")):
                value = {name: value}
            table = config.merge(table, value)
        small = config.RECIPES.find(self.conditions.law.small)
        return config.load(Recipe, small, table, config.assign({}, assignments))

    @property
    def amounts(self) -> Amounts:
        """What the loss depends on."""
        return amounts_of(self.conditions, self.size)

    @property
    def rows(self) -> int:
        """The rows of a step."""
        rows: int = next(one.value for one in self.choices if one.setting == "train.batch")
        return rows

    @property
    def text_tokens(self) -> float:
        """Tokens of the text, about."""
        return self.conditions.text_tokens(self.size.vocab)

    @property
    def epochs(self) -> float:
        """How often the text is read, about."""
        return self.tokens / self.text_tokens

    @property
    def flops(self) -> float:
        """FLOPs of training, about."""
        return self.tokens * self.size.flops_per_token

    @property
    def computing(self) -> float:
        """The seconds of its FLOPs at the speed of training."""
        return self.flops / self.conditions.training_flops_per_second

    @property
    def seconds(self) -> float:
        """The time that training takes, about: steps of few tokens keep a fast device waiting."""
        step = self.conditions.law.rules.layer_seconds * self.size.layers
        return max(self.computing, step * self.tokens / (self.rows * self.size.length))

    @property
    def title(self) -> str:
        """The description of the recipe."""
        given, text = self.conditions, byte_size(round(self.conditions.text_bytes))
        budget = f"{given.flops:.4g} FLOPs" if given.is_in_flops else f"{given.hours:.4g} h"
        return f"{given.family} for {budget} and {text} of text"

    @property
    def summary(self) -> str:
        """One line for a person."""
        size, budget = self.size, self.choices[-1]
        ends = ""
        if budget.setting == "train.epochs":
            ends = f"; ends after {budget.value:g} epochs, since more add nothing, even if a slow "
            ends += "machine takes longer than the hours"
        model = f"{size.layers} layers of {size.d_model}, vocabulary {size.vocab:,}"
        return f"{self.title}: {model}{ends}; 'foreword check' says why"

    @property
    def counting(self) -> str:
        """One line where counting is known to be as good; "" where it is not.

        Either a table of n-grams of the text has no higher loss, or texts with few labels to tell
        apart gain nothing; of other purposes nothing is known.
        """
        given, loss = self.conditions, self.expected.value
        if given.purpose in ("", "generate"):
            table = laws(given.laws)[COUNTED].expect(self.amounts)
            is_known = loss is not None and table.unit == self.expected.unit
            if is_known and (table.value or math.inf) < (loss or 0.0):
                return (
                    "with so little, counting is as good: a table of n-grams, which takes seconds, "
                    f"is expected to have {table.value:.2f} {table.unit}, this model {loss:.2f} "
                    f"({table.source})"
                )
        is_of_classes = given.purpose in ("", "classify")
        return given.law.counting_suffices(self.amounts.flops) if is_of_classes else ""

    @property
    def facts(self) -> dict[str, Any]:
        """Conditions, choices and what is known of the loss, as plain values."""
        choices = [asdict(choice) for choice in self.choices]
        known = {"expected_loss": str(self.expected), "counting": self.counting or None}
        names = ("tokens", "epochs", "flops", "seconds")
        amounts = {"parameters": self.size.parameters} | {n: getattr(self, n) for n in names}
        return {**asdict(self.conditions), "choices": choices, **amounts, **known}


def dial(conditions: Conditions) -> Dial:
    """Return the settings that learn most under the conditions, each with its reason."""
    small, large = _recipes(conditions.law)
    size, why = _choose_size(conditions, small, large)
    most = conditions.law.rules.most_epochs * conditions.text_tokens(size.vocab)
    tokens = min(conditions.flops / size.flops_per_token, most)
    choices = (
        _vocab(conditions, size),
        *_shape(conditions, size, small, why),
        *_heldout(conditions, size, small),
        *_regularisation(conditions, size, tokens, small),
        *_training(conditions, size, tokens, small),
        *_stages(conditions),
        _budget(conditions, tokens, most),
    )
    return Dial(conditions, size, tokens, choices, expected_loss(conditions, size))


def expected_loss(
    conditions: Conditions, size: ModelSize, spread: float | None = None
) -> Expectation:
    """Return what is known of the loss of a size; `spread` is the relative error of the speed."""
    expected = conditions.law.expect(amounts_of(conditions, size), spread)
    if not conditions.law.stages.get(conditions.purpose):
        return expected
    why = f"none has been measured in stages; in one, {expected}"
    return Expectation(expected.unit, expected.source, why=why)


def amounts_of(conditions: Conditions, size: ModelSize) -> Amounts:
    """Return what the loss of a size depends on."""
    text_tokens = conditions.text_tokens(size.vocab)
    most = conditions.law.rules.most_epochs * text_tokens * size.flops_per_token
    parts = (size.parameters, size.in_layers, size.flops_per_token, size.vocab)
    flops = min(conditions.flops, most)
    return Amounts(flops, *parts, text_tokens, conditions.text_bytes)


def _recipes(law: FamilyLaw) -> tuple[Recipe, Recipe]:
    """Return the small and the large recipe of a family."""
    return _recipes_named(law.small, law.large, law.longest)


@cache
def _recipes_named(small: str, large: str, longest: int) -> tuple[Recipe, Recipe]:
    """Return two recipes, the second with rows of `longest` tokens at most."""
    recipe = load_recipe(large)
    packing = {"packing": {"length": min(recipe.packing.length, longest)}}
    return load_recipe(small), config.build(Recipe, config.merge(config.to_table(recipe), packing))


def _choose_size(conditions: Conditions, small: Recipe, large: Recipe) -> tuple[ModelSize, str]:
    """Return the largest size that budget, text and memory are enough for, or else the smallest.

    Also returns what the next size lacks, in words.
    """
    family, vocab, text = conditions.law, conditions.vocab, conditions.text_bytes
    rules, known = family.rules, family.law and (family.law.vocabulary or family.vocabulary)
    if known and rules.is_supported(known, text):
        vocab = vocab or known  # that the law's losses hold for
    candidates = sizes(rules, small, large, text, vocab, conditions.longest_document)
    start = next(
        size for size in candidates if size.d_model == neural_settings(small.model).d_model
    )

    def lacks(size: ModelSize) -> str:
        memory = size.parameters * rules.bytes_per_parameter / rules.memory_share
        if memory > conditions.memory:
            return f"{byte_size(round(memory))} of memory"
        needed = rules.tokens_per_parameter * size.active / rules.useful_epochs
        known = conditions.text_tokens(size.vocab)
        if size.active > start.active and known < needed:
            return f"{byte_size(round(text * needed / known))} of text"
        least = least_flops(family, size, start)
        if family.law is None and conditions.flops < least:
            hours = f"{conditions.hours * least / conditions.flops:.2g} h"
            return f"{power(least)} FLOPs" if conditions.is_in_flops else hours
        return ""

    fitting = [size for size in candidates if not lacks(size)] or candidates[:1]
    if family.law is not None:
        return _best_size(conditions, fitting)
    chosen = fitting[-1]
    larger = [size for size in candidates if size.active > chosen.active]
    return chosen, f"{larger[0].d_model} would need {lacks(larger[0])}" if larger else "the largest"


def _best_size(conditions: Conditions, sizes: Sequence[ModelSize]) -> tuple[ModelSize, str]:
    """Return the size of the lowest loss by the family's scaling law, and why."""
    family = conditions.law
    amounts = [amounts_of(conditions, size) for size in sizes]
    losses = [family.law_forecast(one).value or math.inf for one in amounts]
    best = min(range(len(sizes)), key=losses.__getitem__)
    others = [f"{sizes[n].d_model} {losses[n]:.3f}" for n in (best - 1, best + 1)
              if 0 <= n < len(sizes)]  # fmt: skip
    why = f"the lowest loss by the law of {family.file}, {losses[best]:.3f}"
    return sizes[best], why + (f"; {', '.join(others)}" if others else "")


def least_flops(family: FamilyLaw, size: ModelSize, start: ModelSize) -> float:
    """Return the smallest budget that a size is chosen for.

    Args:
        family: the file of the family.
        size: the size.
        start: the small recipe's.
    """
    if size.active <= start.active:
        return family.rules.small_flops * size.active / start.active
    return family.rules.tokens_per_parameter * size.active * size.flops_per_token


def _vocab(conditions: Conditions, size: ModelSize) -> Choice:
    uses = conditions.text_tokens(size.vocab) / size.vocab
    why = f"with the size of the model; {uses:,.0f} uses of each in the text on average"
    reason = conditions.vocab_reason or why
    return Choice("tokenizer.vocab", size.vocab, reason)


def _shape(conditions: Conditions, size: ModelSize, small: Recipe, why: str) -> list[Choice]:
    """Return the choices of the model's shape and the rows; `why` is the width's reason."""
    model = neural_settings(small.model)
    name, factor = conditions.law.small, size.d_model / model.d_model
    proportion = f"the proportions of {name}"
    if factor == 1:
        why = f"as {name}; {why}"
    each = f"{size.d_model / size.layers:.0f} of width each" if size.heads else f"as {name}"
    choices = [
        Choice("model.d_model", size.d_model, why),
        Choice("model.layers", size.layers, each),
    ]
    if size.heads:
        each = f"{size.d_model / size.heads:.0f} of width each"
        choices.append(Choice("model.heads", size.heads, each))
        choices.append(Choice("model.d_ff", size.d_ff, proportion))
    if model.init in ("bert", "gpt2"):
        std = _rounded(model.init_std / math.sqrt(factor))
        choices.append(Choice("model.init_std", std, "with 1 / sqrt(d_model)"))
    longer = f"as {name}"
    if size.heads:
        longer = "with d_model, so that attention's share of the cost stays"
    if size.heads and conditions.document_tokens is not None:
        median, longest = conditions.document_tokens
        longer += f"; half of the documents have more than {median:,.0f} tokens"
        if longest <= size.length:
            longer += f", 95 % at most {longest:,.0f}, which need no longer rows"
    return [*choices, Choice("packing.length", size.length, longer)]


def _heldout(conditions: Conditions, size: ModelSize, small: Recipe) -> list[Choice]:
    """Return the choice of the held-out share, where the small recipe's is too little text."""
    rules, text = conditions.law.rules, conditions.text_tokens(size.vocab)
    share = min(rules.most_heldout, _rounded(rules.heldout_tokens / text))
    if share <= small.prepare.heldout:
        return []
    why = f"about {share * text:,.0f} tokens to measure the loss on"
    return [Choice("prepare.heldout", share, why)]


def _regularisation(
    conditions: Conditions, size: ModelSize, tokens: float, small: Recipe
) -> list[Choice]:
    """Return the choices that keep a repeated text from being memorised."""
    model = neural_settings(small.model)
    epochs = tokens / conditions.text_tokens(size.vocab)
    rules, read = conditions.law.rules, f"the text is read {epochs:.2g} times"
    dropout, decay = model.dropout, getattr(small.optimizer, "decay", None)
    if epochs >= rules.repeated_epochs:
        if rules.repeated_decay > (decay or 0.0) or rules.repeated_dropout > dropout:
            read += f"; from {rules.repeated_epochs:g} on, this keeps it from being memorised"
        dropout = max(dropout, rules.repeated_dropout)
        decay = None if decay is None else max(decay, rules.repeated_decay)
    choices = [Choice("model.dropout", dropout, read)]
    if hasattr(model, "attention_dropout"):
        choices.append(Choice("model.attention_dropout", dropout, read))
    if decay is not None:
        choices.append(Choice("optimizer.decay", decay, read))
    return choices


def _training(
    conditions: Conditions, size: ModelSize, tokens: float, small: Recipe
) -> list[Choice]:
    """Return the choices of batch, learning rate, first embeddings and warm-up."""
    # The batch: the small recipe's, times a power of two.
    rules, first = conditions.law.rules, small.rows_per_step * small.packing.length
    growth = max(1.0, math.sqrt(tokens / rules.batch_tokens))
    # How many times the hours steps of so few rows would keep the device waiting.
    waiting = rules.layer_seconds * size.layers / 3600  # hours, at least, of a step
    busy = 1.0 if conditions.is_in_flops else max(1.0, tokens / first * waiting / conditions.hours)
    target = first * 2.0 ** max(math.floor(math.log2(growth)), math.ceil(math.log2(busy)))
    rows = max(1, math.floor(min(target, tokens / rules.least_steps) / size.length))
    step = rows * size.length
    steps = tokens / step
    why = f"{step:,} tokens a step"
    if busy > growth:
        why += "; shorter ones would keep the device waiting"
    is_long = max(conditions.hours, steps * waiting) >= rules.vectors_hours
    rate = _rate(conditions, size, small, is_long=is_long)
    choices = [Choice("train.batch", rows, why), rate]
    if counted := getattr(small.train.embedding_init, "tokens", None):
        setting, value = "train.embedding_init.tokens", counted
        why = "tokens that the first embeddings are counted from, in seconds"
        if not is_long:
            setting, value = "train.embedding_init", "random"
            why = "counting first embeddings would take much of so short a time"
        choices.append(Choice(setting, value, why))
    # Settings that only some optimizers and schedules have.
    beta2 = getattr(small.optimizer, "beta2", None)
    if beta2 is not None:
        least = min(beta2, rules.least_beta2)
        value = _rounded(max(least, beta2 ** (step / first)), 4)
        choices.append(Choice("optimizer.beta2", value, "a memory of equally many tokens"))
    warmup = getattr(small.schedule, "warmup", None)
    if warmup is not None and not warmup.steps:
        share = _rounded(min(warmup.share, rules.most_warmup_steps / steps))
        why = f"at most {rules.most_warmup_steps:,} steps"
        choices.append(Choice("schedule.warmup.share", share, why))
    return choices


def _rate(conditions: Conditions, size: ModelSize, small: Recipe, *, is_long: bool) -> Choice:
    """Return the choice of the learning rate, by width; `is_long`: with counted embeddings."""
    family, width = conditions.law, neural_settings(small.model).d_model
    rules = family.rules
    exponent = rules.rate_exponent
    rate = small.optimizer.lr * width / size.d_model
    why = "with 1 / d_model"
    if exponent != 1:
        rate = small.optimizer.lr * (width / size.d_model) ** exponent
        why += f" ** {exponent:g}"
    if rules.narrow_keeps_rate and size.d_model < width and is_long:
        rate, why = small.optimizer.lr, f"as {family.small}, in narrower models too"
    return Choice("optimizer.lr", _rounded(rate), why)


def _stages(conditions: Conditions) -> list[Choice]:
    """Return the choice of stages before the last, if the purpose is served better by some."""
    law, purpose = conditions.law, conditions.purpose
    if not (stages := law.stages.get(purpose)):
        return []
    why = f"better to {purpose}, at equal FLOPs ({law.sources['stages']})"
    return [Choice("stages", stages, why)]


def _budget(conditions: Conditions, tokens: float, most: float) -> Choice:
    """Return the budget as it was given, or epochs where more of them add nothing."""
    if tokens < most and conditions.is_in_flops:
        return Choice("train.flops", _rounded(conditions.flops, 12), "as given")
    if tokens < most:
        why = f"as given; chosen for {power(conditions.training_flops_per_second)} FLOP/s"
        return Choice("train.hours", conditions.hours, why)
    law = conditions.law
    why = f"further epochs of so little text would add nothing ({law.sources['most_epochs']}); a "
    why += "slow machine may take longer than the hours for these"
    return Choice("train.epochs", law.rules.most_epochs, why)


def _rounded(value: float, digits: int = 3) -> float:
    """Return a number with few digits."""
    return float(f"{value:.{digits}g}")
