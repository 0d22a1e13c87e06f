"""The contract of every probe, checked for every file in `probes/`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from torch import nn

from foreword.errors import UserError
from foreword.evaluation.prompting import PromptedModel
from foreword.models.ngram import NGram
from foreword.nn.model import Model
from foreword.objectives.span_corruption import SpanCorruption
from foreword.probes._contract import Finding, Probe, ProbedModel
from foreword.probes._suite import Suite
from foreword.runs.trained_model import open_run
from foreword.settings import config, kinds
from foreword.settings.kinds import Part, name_of
from foreword.testing.probes import MODELS, PROBE_CHECKS, plotted

from ..probes.conftest import few_draws, make_run, text, tokenizer, words  # noqa: F401 - fixtures

PROBES = kinds.names("probes")
every_probe = pytest.mark.parametrize("name", PROBES)
Make = Callable[[str], Path]
MEASURES = {  # the function that measures, once all models are checked; of suites, `answers`
    "analogies": "_count_right",
    "attention": "_summary",
    "gradient_reach": "_measure_norms",
    "memorisation": "_figures",
    "sentence_similarity": "_cosines_by_layer",
    "similarity": "rank_correlation",
    "tagging": "_fitted",
    "word_in_context": "_pairs_by_layer",
}


# Files of the probes that require some, by setting: name and content.
TAGGED = "".join(
    f"{n}\t{word}\t_\t{tag}\t_\t_\t_\t_\t_\t_\n"
    for n, (word, tag) in enumerate([("the", "DET"), ("bank", "NOUN"), ("of", "ADP")], 1)
)
FILES: dict[str, dict[str, tuple[str, str] | dict[str, str]]] = {  # a table for a folder
    "crows_pairs": {
        "files": (
            "pairs.csv",
            "sent_more,sent_less,bias_type\nthe old bank,the old river,age\n"
            "he sat by the bank,he sat by the river,gender\n",
        )
    },
    "stereoset": {
        "files": (
            "stereoset.json",
            '{"data": {"intrasentence": [{"id": "1", "bias_type": "age", "target": "bank", '
            '"context": "the BLANK", "sentences": ['
            '{"sentence": "the old bank", "gold_label": "stereotype"}, '
            '{"sentence": "the river bank", "gold_label": "anti-stereotype"}, '
            '{"sentence": "the of bank", "gold_label": "unrelated"}]}], "intersentence": [{'
            '"id": "2", "bias_type": "age", "target": "he", "context": "he sat by the bank.", '
            '"sentences": [{"sentence": "the old bank", "gold_label": "unrelated"}, '
            '{"sentence": "the river bank", "gold_label": "anti-stereotype"}, '
            '{"sentence": "he sat", "gold_label": "stereotype"}]}]}}',
        )
    },
    "winobias": {
        "files": {
            "pro_stereotyped_type1.txt": "1 [the bank] sat by [the river]\n2 [he] sat\n",
            "anti_stereotyped_type1.txt": "1 [the river] sat by [the river]\n2 [the] sat\n",
        }
    },
    "winogender": {
        "files": {
            "all_sentences.tsv": "sentid\tsentence\n"
            + "".join(
                f"{job}.x.1.{side}.txt\tthe {job} sat by {word} river\n"
                for job in ("bank", "old", "river")
                for side, word in (("female", "the"), ("male", "of"), ("neutral", "by"))
            ),
            "occupations-stats.tsv": "occupation\tbls_pct_female\nbank\t9\nold\t60\nriver\t30\n",
        }
    },
    "choice": {
        "files": (
            "choice.jsonl",
            '{"question": "he sat by", "choices": ["the bank", "the river"], "answer": "A"}\n',
        )
    },
    "cloze": {
        "files": (
            "cloze.jsonl",
            '{"text": "he sat by the ___", "answer": "bank", "alternatives": ["old", "of"]}\n',
        )
    },
    "cola_zero_shot": {
        "files": (
            "cola.tsv",
            "sentence\tlabel\nthe bank of the river\t1\nbank the of\t0\nhe sat\t1\n",
        )
    },
    "lama": {
        "files": (
            "facts.jsonl",
            '{"masked_sentences": ["he sat by the [MASK] ."], "obj_label": "river"}\n',
        )
    },
    "lambada": {"files": ("passages.jsonl", '{"text": "he sat by the bank of the river"}\n')},
    "memorisation": {
        "train": ("train.txt", "he sat by the bank of the river " * 8),
        "canaries": ("canaries.txt", "he sat by bank 4\nhe sat by bank 4\n"),
    },
    "minimal_pairs": {
        "files": (
            "pairs.jsonl",
            '{"sentence_good": "the bank of the river", "sentence_bad": "the bank the of river"}\n'
            '{"sentence_good": "he sat by the bank", "sentence_bad": "he sat bank the by"}\n',
        )
    },
    "sentence_similarity": {
        "file": (
            "pairs.tsv",
            "sentence1\tsentence2\tscore\nthe bank of the river\tthe river bank\t4\n"
            "he sat by the bank\tthe old river\t1.5\nthe river\tthe river\t5\n",
        )
    },
    "tagging": {"train": ("train.conllu", f"{TAGGED}\n" * 3), "dev": ("dev.conllu", TAGGED)},
}


SETTINGS: dict[str, dict[str, Any]] = {
    "attention": {"sentence": "the bank of the river"},
    "in_context": {"task": "translate", "shots": [0, 1], "draws": 2, "limit": 2},
    "memorisation": {"prefixes": [2, 6], "continuation": 3, "passages": 5, "candidates": 8},
}
FAMILIES = {"attention": ("decoder", "encoder")}  # that a probe supports; default: MODELS


def build(name: str, folder: Path) -> Any:
    settings = dict(SETTINGS.get(name, {}))
    for setting, given in FILES.get(name, {}).items():
        where = folder / setting if isinstance(given, dict) else folder
        where.mkdir(exist_ok=True)
        for file, content in given.items() if isinstance(given, dict) else [given]:
            (where / file).write_text(content, encoding="utf-8")
        settings[setting] = str(where if isinstance(given, dict) else where / given[0])
    return config.build_kind(Part("probes"), {"kind": name, **settings}, "probe")


def probed(run: Path, text_file: Path) -> ProbedModel:
    return ProbedModel(run.name, PromptedModel.of(open_run(run, "cpu")), (str(text_file),))


def measure_two(probe: Probe, make: Make, text_file: Path) -> tuple[list[ProbedModel], Finding]:
    families = FAMILIES.get(name_of(probe), MODELS)
    models = [probed(make(family), text_file) for family in families]
    return models, probe.measure(models)


def counts(probed_model: ProbedModel) -> PromptedModel:
    """Return a model of counts, without states or gradients."""
    backbone = NGram().build(probed_model.trained.vocab.size)
    model = Model(backbone, nn.ModuleDict({"token": backbone.build_token_head()}))
    return replace(
        probed_model.trained,
        model=model,
        recipe=replace(probed_model.trained.recipe, model=NGram()),
    )


def answering(probed_model: ProbedModel) -> PromptedModel:
    """Return a model of parallel text, which gives a text a probability as a translation only."""
    recipe = probed_model.trained.recipe
    read = replace(recipe.read, target="en")
    recipe = replace(recipe, objective=SpanCorruption(), read=read)
    return replace(probed_model.trained, recipe=recipe)


UNSUPPORTED = {  # by probe; default: `counts`
    name: answering
    for name in PROBES
    if issubclass(kinds.load("probes", name), Suite) or name == "memorisation"
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the files of all probes: one with the same files is measured once."""
    return tmp_path_factory.mktemp("probes")


@pytest.mark.product
@every_probe
@pytest.mark.parametrize("check", PROBE_CHECKS, ids=lambda check: check.__name__)
def test_every_probe_keeps_the_contract(
    check: Callable[[Probe, Sequence[str], Sequence[str]], None], name: str, places: Path
) -> None:
    check(build(name, places), words(), FAMILIES.get(name, MODELS))


@pytest.mark.product(few=3)
@every_probe
def test_a_plot_of_too_many_runs_shows_the_first_and_notes_it(
    name: str,
    make_run: Make,  # noqa: F811
    text: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_suite = issubclass(kinds.load("probes", name), Suite)
    for module in ("_suite" if is_suite else name, "_marks"):
        monkeypatch.setattr(f"foreword.probes.{module}.MAX_RUNS", 1)
    _, result = measure_two(build(name, tmp_path), make_run, text)
    figure = Figure(layout="constrained")
    result.plot(figure)
    assert len(plotted(figure)) == 1
    assert "the first 1 of 2 runs" in figure.axes[0].get_title() + figure.get_suptitle()


@pytest.mark.product(few=5)
@every_probe
def test_an_unsupported_model_is_refused_before_any_is_measured(
    name: str,
    make_run: Make,  # noqa: F811
    text: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("measured")

    kind = kinds.load("probes", name)
    if issubclass(kind, Suite):
        monkeypatch.setattr(kind, "answers", fail)
    else:
        monkeypatch.setattr(kind.__module__ + "." + MEASURES[name], fail)
    one = probed(make_run("decoder"), text)
    other = replace(one, trained=replace(UNSUPPORTED.get(name, counts)(one), source=Path("other")))
    with pytest.raises(UserError, match=r"^other: "):
        build(name, tmp_path).measure([one, other])
