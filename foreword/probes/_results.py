"""A probe chosen by its name, the models it examines, and what it found, as a result to save."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

from foreword.errors import UserError
from foreword.probes._contract import Finding, Probe, ProbedModel
from foreword.probes._random_weights import with_random_weights
from foreword.probes._suite import Suite
from foreword.runs.provenance import command
from foreword.runs.trained_model import TrainedModel
from foreword.settings import config, kinds, plugins


def named_probe(name: str, table: Mapping[str, Any], files: Sequence[str]) -> Probe:
    """Return a probe, or a suite of questions, by its name or its file of TOML.

    Args:
        name: the name or the file.
        table: its settings.
        files: a suite's questions.

    Raises:
        UserError: there is no such kind, or a setting is wrong.
    """
    table = dict(table)
    if name.endswith(".toml"):
        kind, file = Path(name).stem, Path(name)
        cls: Any = plugins.toml_reader("probes").kind_of(file, f"suite.{kind}")
    else:
        kind = next(iter(kinds.called("probes", name)), "")
        if not kind:
            hint = kinds.nearest_kind("probes", name)
            if Path(name).exists():
                hint = "; the last word is what to measure: foreword probe RUN... NAME"
            raise UserError(f"no probe or suite '{name}'{hint}")
        cls = kinds.load("probes", kind)
    if issubclass(cls, Suite):
        if len(files) > 1:
            raise UserError(f"--data: '{name}' takes one file, folder or pattern")
        if files:
            table["files"] = files[0]
    is_known = table.keys() <= {f.name for f in fields(cls)}
    for f in fields(cls) if is_known else ():  # else the needed one may be misspelt
        if f.default is f.default_factory is MISSING and f.name not in table:
            is_question = f.name == "files" and issubclass(cls, Suite)
            option = "--data, the files of its questions" if is_question else f"--set {f.name}=..."
            raise UserError(f"{name}: requires {option}")
    probe: Probe = config.build(cls, table, "probe", f"kind '{kind}'")
    return probe


def probed_models(
    models: Mapping[str, TrainedModel], texts: Sequence[str], *, with_untrained: bool
) -> list[ProbedModel]:
    """Return models by their labels as they are probed, each with its untrained copy if asked for.

    Raises:
        UserError: none has weights to randomise.
    """
    probed = []
    for label, trained in models.items():
        probed.append(ProbedModel(label, trained, tuple(texts)))
        if with_untrained and not trained.is_count_based:
            random = with_random_weights(trained)
            probed.append(ProbedModel(f"{label}, untrained", random, tuple(texts)))
    if with_untrained and all(model.trained.is_count_based for model in probed):
        raise UserError(
            f"--untrained: {probed[0].trained.run} is a count-based model without weights to "
            "randomise"
        )
    return probed


def measure(
    probe: Probe, models: Sequence[ProbedModel], stage: Callable[..., None]
) -> tuple[Finding, dict[str, Any], bytes]:
    """Return what a probe found, the result to save, and its plot as PNG.

    Args:
        probe: the probe.
        models: the models.
        stage: called with what is done, of all models, and all there is to do.
    """

    def part(before: int) -> Callable[[int, int], None]:
        return lambda done, total: stage(before * total + done, len(models) * total)

    finding = probe.measure([replace(m, progress=part(n)) for n, m in enumerate(models)])
    plot = finding.rendered()
    notes = [*finding.notes, *([plot.note] if plot.note else [])]
    if any(model.label.endswith(", untrained") for model in models):
        notes += [
            f"{model.label}: a count-based model without weights to randomise, so it has no "
            "untrained copy"
            for model in models
            if model.trained.is_count_based
        ]
    content: dict[str, Any] = {
        "name": f"{'suite' if isinstance(probe, Suite) else 'probe'}-{kinds.name_of(probe)}",
        "task": finding.title,
        "runs": {model.label: str(model.trained.run) for model in models},
        "settings": config.to_table(probe),
        "rows": list(finding.rows),
        "details": [] if finding.predictions else list(finding.details),
        "notes": notes,
        "command": command(),
    }
    if finding.predictions:
        content["predictions"] = list(finding.predictions)
    of = {"runs": content["runs"], "settings": content["settings"], "texts": list(models[0].texts)}
    return finding, content | {"of": of}, plot.data
