"""The model card of a run, a tuned model or an export: a README.md in Hugging Face's form.

It says only what the folders hold, and of files and folders nothing but their names.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from foreword.disk import atomic, stored
from foreword.disk.credentials import masked
from foreword.evaluation.statistics import wilson
from foreword.formatting import at_most, cell, figure, power, with_bounds, with_intervals
from foreword.reports import folder as folders
from foreword.reports.evaluations import heading
from foreword.reports.folder import RunFolder, number
from foreword.reports.page import sentence, title
from foreword.reports.tuning import metrics
from foreword.settings import kinds
from foreword.tuning.scores import Scores, metric_name, train_count
from foreword.tuning.tuned_folder import FILE as LABELS
from foreword.tuning.tuned_folder import SCORES

FILE = "README.md"
MOST_ROWS = 12  # of a table
BIAS = ("crows_pairs", "stereoset", "winobias", "winogender")  # suites that measure it
PIPELINES = ("text-classification", "token-classification", "question-answering", "fill-mask")
_FOLDERS = re.compile(r"(?:\w+:(?=//))?(?:[^\s/\\=,'\"]*[/\\])+(?=[^\s/\\])")  # in a sentence
_ABOVE = re.compile(r"^(-*[\w.-]+=)?.*[/\\](?=.)")  # of a path, perhaps after `--option=`
OWN = "foreword"  # the library of a run or a tuned model that was not exported
# How each library opens a folder.
LOADING = {
    OWN: 'import foreword\n\nmodel = foreword.load("{name}")',
    "transformers": (
        "from transformers import AutoTokenizer, {architecture}\n\n"
        'tokenizer = AutoTokenizer.from_pretrained("{name}")\n'
        'model = {architecture}.from_pretrained("{name}")'
    ),
    "pipeline": (
        'from transformers import pipeline\n\nmodel = pipeline("{tag}", "{name}")\nmodel(text{cut})'
    ),
    "sentence-transformers": (
        "from sentence_transformers import SentenceTransformer\n\n"
        'SentenceTransformer("{name}").encode(texts)'
    ),
    "peft": (
        "from peft import PeftModel\n\n"
        "# `base`: the export of the run that it was tuned from, opened with this config.json\n"
        'model = PeftModel.from_pretrained(base, "{name}")'
    ),
    "loader": (
        "import runpy\n\n"
        'Average = runpy.run_path("{name}/{loader}")["Average"]\n'
        'Average("{name}")(texts)  # probabilities of the labels, or numbers'
    ),
    "onnx": (
        "import numpy as np\n"
        "import onnxruntime\n"
        "from tokenizers import Tokenizer\n\n"
        'tokenizer = Tokenizer.from_file("{name}/tokenizer.json")\n'
        "tokenizer.enable_padding()\n"
        "tokenizer.enable_truncation({length})\n"
        "rows = tokenizer.encode_batch(texts)  # texts, or (text, text) pairs\n"
        'session = onnxruntime.InferenceSession("{name}/model.onnx")\n'
        'inputs = {{"input_ids": [row.ids for row in rows],\n'
        '          "attention_mask": [row.attention_mask for row in rows],\n'
        '          "token_type_ids": [row.type_ids for row in rows]}}\n'
        "names = [each.name for each in session.get_inputs()]\n"
        "outputs = session.run(None, {{name: np.array(inputs[name]){joined} for name in names}})"
    ),
}


def write(source: Path, out: Path, library: str, facts: Mapping[str, Any]) -> None:
    """Write the card of a folder.

    Args:
        source: what it is of: a run, one of its checkpoints, or a tuned model.
        out: the folder: the same, or an export.
        library: what opens it: foreword, transformers, sentence-transformers, peft or onnx.
        facts: what the export found, such as `architecture` and `logit_difference`.

    Raises:
        UserError: it cannot be written.
    """
    atomic.write_text(out / FILE, card(source, out.resolve().name, library, facts))


def card(source: Path, name: str, library: str, facts: Mapping[str, Any]) -> str:
    """Return the card of a folder that is called `name`; the others as in `write`."""
    run = folders.read(_pretraining_of(source))
    tuned = _content(source / LABELS, ("task", "labels"))
    scores = _content(source / SCORES, ("rows", "settings", "examples"))
    tag = _pipeline_tag(run, tuned)
    front = {
        "library_name": library,
        "pipeline_tag": tag,
        "tags": list(dict.fromkeys(["foreword", str(run.recipe.get("family") or "").lower()])),
        "model-index": _model_index(name, tag, scores),
    }
    lines = [f"{key}: {stored.to_json(value)}" for key, value in front.items() if value]
    sections = {
        "": [_what(run, tuned, tag)],
        "How to load it": _loading(name, library, tag, run, tuned, facts),
        "Pretraining": _pretraining(run),
        "Fine-tuning": _tuning(tuned, scores),
        "Scores": _scores(scores) if tuned else _evaluations(run),
        "Limits": list(_limits(run, tuned, scores)),
        "How it was made": _commands(run, scores),
        "Licence": ["None is stated: whoever shares this model adds `license:` at the top."],
    }
    body = [
        "\n".join([*([f"## {heading}\n"] if heading else [f"# {name}\n"]), *paragraphs])
        for heading, paragraphs in sections.items()
        if paragraphs
    ]
    return masked("---\n" + "\n".join(lines) + "\n---\n\n" + "\n\n".join(body) + "\n")


def _name(path: str) -> str:
    """Return the last name of a path or a URL, or of several between commas."""
    parts = (part.rstrip("/\\") for part in masked(path).split(", "))
    return ", ".join(_ABOVE.sub(r"\1", part) for part in parts)


def _pretraining_of(source: Path) -> Path:
    """Return the run that a tuned model or a checkpoint belongs to; else the folder itself."""
    path = source.resolve()
    path = path.parent if path.name == "fine_tuned" else path  # of an average of candidates
    while path.parent.name in ("tuned", "checkpoints") and path.parent.parent != path:
        path = path.parent.parent
    places = (path, source / "model")  # an average holds the pretrained model
    return next((place for place in places if (place / "recipe.toml").is_file()), source)


def _content(file: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    """Return what a file holds; nothing if it is not there, or older than these keys."""
    content = stored.read(file) if file.is_file() else {}
    return content if content.keys() >= set(keys) else {}


def _pipeline_tag(run: RunFolder, tuned: Mapping[str, Any]) -> str:
    """Return the hub's name of what the model does; "" if it has none."""
    if tuned:
        exports = kinds.load("tuning/tasks", tuned["task"]["kind"]).exports
        return "text-generation" if exports is None else str(exports.pipeline_tag)
    layout = str(_table(run.recipe, "layout").get("kind"))
    return {"encoder": "fill-mask", "decoder": "text-generation"}.get(layout, "")


def _model_index(name: str, tag: str, scores: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the scores on the dev examples, as the hub shows them."""
    if not scores:
        return []
    dev = _name(str(_table(scores["settings"], "data").get("dev", "dev")))
    metrics = [
        {"type": metric, "value": round(score.mean, 4), "name": metric_name(metric)}
        for metric, score in Scores.of(scores["rows"][0]).metrics.items()
        if math.isfinite(score.mean)
    ]
    dataset = {"name": dev, "type": re.sub(r"[^\w.-]+", "-", dev)}
    task = {"type": tag, "name": scores["task"]}
    return [{"name": name, "results": [{"task": task, "dataset": dataset, "metrics": metrics}]}]


def _what(run: RunFolder, tuned: Mapping[str, Any], tag: str) -> str:
    made = f"{title(run)}, pretrained with Foreword"
    if not tuned:
        return f"{made}."
    labels = tuned["labels"]
    listed = f": {', '.join(labels)}" if labels and len(labels) <= 20 else ""
    return f"{made} and fine-tuned for the task `{tuned['task']['kind']}` ({tag}){listed}."


def _loading(
    name: str,
    library: str,
    tag: str,
    run: RunFolder,
    tuned: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> list[str]:
    """Return the code that opens the folder, and how its logits compare."""
    form = "loader" if "loader" in facts else library
    form = "pipeline" if library == "transformers" and tag in PIPELINES else form
    code = LOADING[form].format(
        name=name,
        tag=tag,
        architecture=facts.get("architecture") or "AutoModel",
        length=_length(run, tuned),
        loader=facts.get("loader"),
        cut=", truncation=True" if tag == "text-classification" else "",
        joined="[None]" if tag == "multiple-choice" else "",  # the options of one question
    )
    said = ["```python", code.replace("tokenizer.enable_truncation(None)\n", ""), "```"]
    if facts.get("logit_difference") is not None:
        said.append(
            f"\nIts outputs differ from Foreword's by at most {facts['logit_difference']:.1e}, "
            f"where the greatest is {figure(facts['greatest_logit'], 3)}."
        )
    if "int8_difference" in facts:
        share = facts.get("int8_same_answers")
        same = "" if share is None else f"; {share:.0%} of the answers to random texts are the same"
        said.append(f"Those of `model_int8.onnx` differ by {facts['int8_difference']:.1e}{same}.")
    if library == "transformers" and not tuned:
        said.append(f"\n`foreword import {name} --out RUN` reads it back into Foreword.")
    return said


def _length(run: RunFolder, tuned: Mapping[str, Any]) -> int | None:
    """Return the most tokens that the model reads at once; None if there is no limit."""
    part = _table(tuned, "template") or _table(run.recipe, "packing")
    length: int | None = part.get("length")
    return length


def _pretraining(run: RunFolder) -> list[str]:
    """Return how the run was made: its size, its text, its time and its held-out loss."""
    facts = run.provenance
    if imported := _table(facts, "imported"):
        source = _name(str(imported.get("folder") or imported.get("file") or "elsewhere"))
        return [f"Its weights were imported from {source}."]
    if not run.train:
        return []
    names = [_name(str(text)) for text in facts.get("texts") or ()]
    data = _table(facts, "data")
    texts = dict.fromkeys([*names, *_table(data, "sources")])
    content = (
        f" (BLAKE2b of its documents: {data['text_blake2b']})" if "text_blake2b" in data else ""
    )
    said = [f"- {sentence(run)}"]
    said += [f"- Text: {', '.join(texts)}{content}."] if texts else []
    last = run.train[-1]
    on = f" on {facts['computed_on']} in {facts['precision']}" if "computed_on" in facts else ""
    if number(last, "flops") > 0:
        said.append(f"- Compute: {power(number(last, 'flops'))} floating-point operations{on}.")
    if run.heldout:
        loss = number(run.heldout[-1], "loss")
        nats = at_most(figure(loss), bool(run.heldout[-1].get("is_bound")))
        said.append(f"- Held-out loss: {nats} nats per prediction, without an interval.")
    return said


def _evaluations(run: RunFolder) -> list[str]:
    """Return what was measured of a run, a table each, with the intervals that are known."""
    said = []
    for one in run.evaluations:
        if one.rows and not metrics(one):
            said += [
                f"{heading(one)}:\n",
                *_lines([with_intervals(with_bounds(row)) for row in one.rows]),
                "",
            ]
    return said[:-1]


def _lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    names = list(rows[0])
    table = [[name.replace("_", " ") for name in names], ["---"] * len(names)]
    table += [[_name(cell(row.get(name))) for name in names] for row in rows[:MOST_ROWS]]
    more = [f"\n{len(rows) - MOST_ROWS} more rows."] if len(rows) > MOST_ROWS else []
    return ["| " + " | ".join(cells) + " |" for cells in table] + more


def _tuning(tuned: Mapping[str, Any], scores: Mapping[str, Any]) -> list[str]:
    if not scores:
        return []
    settings, about = scores["settings"], Scores.of(scores["rows"][0]).about
    train = _name(str(_table(settings, "data").get("train", "train")))
    chosen = {
        "strategy": _table(settings, "strategy").get("kind"),
        "learning rate": f"{about['lr']:g}" if "lr" in about else None,
        "epochs": about.get("epochs"),
        "batch": settings.get("batch"),
        "optimizer": _table(settings, "optimizer").get("kind"),
        "folds" if settings.get("folds") else "seeds": about.get("seeds"),
        "trained parameters": about.get("trained_parameters"),
    }
    listed = ", ".join(f"{key} {cell(value)}" for key, value in chosen.items() if value is not None)
    said = [f"- {train_count(scores['examples'])} ({train}).", f"- Settings: {listed}."]
    shares: Sequence[float] = _table(tuned, "task").get("thresholds") or ()
    if len(shares) == 1:
        said.append(f"- A label is predicted from a probability of {shares[0]:.3g} on.")
    elif shares:
        each = zip(tuned.get("labels") or (), shares, strict=True)
        named = ", ".join(f"{label} {share:.3g}" for label, share in each)
        said.append(f"- A label is predicted from its own probability on: {named}.")
    return said


def _scores(scores: Mapping[str, Any]) -> list[str]:
    """Return the scores on the dev examples as a table, with baselines."""
    if not scores:
        return []
    rows = [Scores.of(row) for row in scores["rows"]]
    names = list(rows[0].metrics)
    dev = _name(str(_table(scores["settings"], "data").get("dev", "dev")))
    count = scores["examples"]["dev"]
    table = [
        {"": row.name} | {metric_name(name): _score(row, name, count) for name in names}
        for row in rows
    ]
    seeds = int(rows[0].about.get("seeds", 1))
    on = f"On {count:,} dev examples ({dev})"
    if seeds > 1:
        on += f", mean ± standard deviation over {seeds} seeds, of which this is one"
    if scores["settings"].get("folds"):
        on = (
            f"On {count:,} training examples, each by a network that learned from other folds, "
            f"mean ± standard deviation over {seeds} folds; this model learned from all"
        )
    interval = "; in brackets the 95 % interval over examples" if "accuracy" in names else ""
    return [f"{on}{interval}:\n", *_lines(table)]


def _score(row: Scores, name: str, count: int) -> str:
    """Return a score, of an accuracy with the interval that the number of examples allows."""
    score = row.metrics.get(name)
    if score is None or name != "accuracy" or math.isnan(score.mean):
        return "" if score is None else row.shown(name)
    low, high = wilson(score.mean * count, count)
    return f"{score} [{low:.3f}, {high:.3f}]"


def _limits(run: RunFolder, tuned: Mapping[str, Any], scores: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a user should know before relying on the model."""
    if length := _length(run, tuned):
        yield f"- It reads at most {length:,} tokens at once."
    yield "- It knows the languages of the texts above alone; which these are was not recorded."
    measured = [one.task for one in run.evaluations if one.task in BIAS]
    if measured:
        yield f"- Bias was measured with {', '.join(dict.fromkeys(measured))}."
    else:
        yield "- Its bias was not measured; it has that of its texts."
    for note in scores.get("notes", ()):
        said = _FOLDERS.sub("", str(note)).removeprefix("warning: ")
        yield f"- {said[:1].upper()}{said[1:]}"


def _commands(run: RunFolder, scores: Mapping[str, Any]) -> list[str]:
    given = [shlex.split(str(content.get("command") or "")) for content in (run.provenance, scores)]
    verbs = [name.replace("_", "-") for name in kinds.names("verbs")]
    known = [words for words in given if words[1:2] and words[1] in verbs]  # else a script's
    return ["```sh", *(shlex.join(map(_name, words)) for words in known), "```"] * bool(known)


def _table(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = content.get(key)
    return value if isinstance(value, Mapping) else {}
