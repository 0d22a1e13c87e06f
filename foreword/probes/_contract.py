"""The interface of a probe, a kind in `probes/`, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

from foreword.data.shards import Shards
from foreword.evaluation import heldout
from foreword.runs.trained_model import TrainedModel

if TYPE_CHECKING:
    from foreword.figures import Rendered

Row = Mapping[str, Any]  # flat: texts, numbers and None
PATH = "path"
FilePath = Annotated[str, PATH]  # of a setting that names a file, a folder or a pattern


@dataclass(frozen=True)
class ProbedModel:
    """A trained model and the text it is probed on.

    Attributes:
        label: name of the model in tables and plots; unique among those compared.
        trained: the model.
        texts: files, folders or globs; default: the held-out text of the model's run.
        progress: called with what is done and all there is to do, by probes that take long.
    """

    label: str
    trained: TrainedModel
    texts: tuple[str, ...] = ()
    progress: Callable[[int, int], object] = lambda done, total: None

    @contextmanager
    def shards(self) -> Iterator[Shards]:
        """Yield the text as token shards.

        Raises:
            UserError: there is no text, or it cannot be read.
        """
        if self.texts:
            with heldout.shards_of_texts(self.trained, self.texts) as (shards, _):
                yield shards
        else:
            yield heldout.shards_of(self.trained, self.trained.run).heldout


@dataclass(frozen=True)
class Finding:
    """The result of a probe.

    Attributes:
        title: one line on what was measured.
        rows: the table for people; all rows have the same keys, the first of them `run`.
        details: the full measurements, as plotted; all rows have the same keys.
        notes: remarks on the figures, one line each.
        plot: plots the details on an empty matplotlib figure.
        measure: what `scores` are, such as "accuracy"; "" without scores.
        scores: one number for each model by its label, which a curve over training shows; None
            where it cannot be computed.
        predictions: each answer of each model, for a suite; all rows have the same keys, the first
            of them `run`.
    """

    title: str
    rows: Sequence[Row]
    details: Sequence[Row]
    notes: Sequence[str]
    plot: Callable[[Any], None]
    measure: str = ""
    scores: Mapping[str, float | None] = field(default_factory=dict)
    predictions: Sequence[Row] = ()

    def rendered(self) -> Rendered:
        """Return the plot as PNG."""
        import matplotlib
        from matplotlib.figure import Figure

        from foreword import figures

        with matplotlib.rc_context(figures.STYLE):
            figure = Figure(layout="constrained")
            self.plot(figure)
            return figures.render(figure)


class Probe(Protocol):
    """A measurement of models: a frozen dataclass whose fields are its settings.

    Attributes:
        reads_text: whether it needs text: the run's held-out text, or another.
    """

    reads_text: ClassVar[bool]

    def measure(self, models: Sequence[ProbedModel]) -> Finding:
        """Measure each model without changing it.

        Raises:
            UserError: a model does not support the probe, or there is no text.
        """
