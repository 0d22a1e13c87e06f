"""What looking into models asks of a probe, a kind in `probes/`, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from foreword.data.shards import Shards
from foreword.evaluate import heldout
from foreword.evaluate.prompting import PromptedModel

Row = Mapping[str, Any]  # flat: texts, numbers and None


@dataclass(frozen=True)
class ProbedModel:
    """A trained model and the text it is probed on.

    Attributes:
        label: what tables and plots call the model; unique among those compared.
        trained: the model.
        texts: files, folders or globs; empty for the held-out text of the model's run.
    """

    label: str
    trained: PromptedModel
    texts: tuple[str, ...] = ()

    @contextmanager
    def shards(self) -> Iterator[Shards]:
        """The text as token shards, while they are needed.

        Raises:
            UserError: there is none, or it cannot be read.
        """
        if self.texts:
            with heldout.shards_of_texts(self.trained, self.texts) as (shards, _):
                yield shards
        else:
            yield heldout.shards_of(self.trained, self.trained.run, "--data").heldout


@dataclass(frozen=True)
class Finding:
    """What a probe found.

    Attributes:
        title: one line on what was measured.
        rows: the table for people; each with the same keys, the first of them `run`.
        details: all that was measured, as the plot shows it; each with the same keys.
        notes: what is to be known beside the figures, a line each.
        draw: puts the plot on an empty matplotlib figure.
    """

    title: str
    rows: Sequence[Row]
    details: Sequence[Row]
    notes: Sequence[str]
    draw: Callable[[Any], None]


class Probe(Protocol):
    """A question put to models: a frozen dataclass, its fields are its settings.

    Attributes:
        reads_text: whether it needs text: the run's held-out one, or another.
    """

    reads_text: ClassVar[bool]

    def measure(self, models: Sequence[ProbedModel]) -> Finding:
        """Looks into each of the models, which stay as they are.

        Raises:
            UserError: a model cannot be asked that, or there is no text.
        """
