"""The promises of docs/architecture.md that no other tool checks."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import grimp
import pytest

from foreword.settings import kinds

# The one folder whose contract stands elsewhere: layers below `models` read its settings.
CONTRACTS_ELSEWHERE = {"models": "nn/model.py"}
# Kinds that come from no paper.
WITHOUT_SOURCE = {
    *("layouts/decoder", "layouts/encoder", "nn/lm_heads/softmax", "nn/source_attentions/mean"),
    *(
        "train/embedding_init/random",
        "train/optimizers/sgd",
        "text/tokenizers/char",
        "text/tokenizers/word",
    ),
    *("train/schedules/constant", "train/schedules/cosine", "train/schedules/linear"),
}
FROM_PAPERS = (
    *("objectives", "layouts", "models", "nn/attentions", "nn/positions", "nn/lm_heads"),
    *("nn/source_attentions", "ngrams/smoothing", "train/optimizers", "train/schedules"),
    "train/embedding_init",
    *("text/tokenizers", "vectors/architectures", "vectors/outputs", "probes"),
)


@cache
def trees() -> list[tuple[Path, ast.Module]]:
    files = sorted(kinds.ROOT.rglob("*.py"))
    return [(file.relative_to(kinds.ROOT), ast.parse(file.read_text("utf-8"))) for file in files]


@pytest.mark.parametrize("of_types", [False, True], ids=["runtime", "types"])
def test_modules_do_not_import_each_other_in_a_circle(of_types: bool) -> None:
    graph = grimp.build_graph("foreword", exclude_type_checking_imports=not of_types)
    imports = {m: set(graph.find_modules_directly_imported_by(m)) for m in graph.modules}
    if of_types:
        imports["foreword"].clear()  # it names the types of what it offers lazily
        imports["foreword.train.hooks"].discard("foreword.train.loop")  # a hook is told its loop
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        steps = [f"{one} imports {other}" for other, one in pairwise(error.args[1])]
        pytest.fail(f"import circle: {'; '.join(steps)}")


def test_every_folder_of_kinds_has_a_contract_file() -> None:
    for folder in kinds.folders():
        file = CONTRACTS_ELSEWHERE.get(folder, f"{folder}/_contract.py")
        text = (kinds.ROOT / file).read_text(encoding="utf-8")
        assert re.search(r"^class \w+\(.*(ABC|Protocol)\)", text, re.M), folder


def test_only_kinds_may_share_a_class_name() -> None:
    folders = {Path(folder) for folder in kinds.folders()}
    modules_of: dict[str, set[Path]] = defaultdict(set)
    for file, tree in trees():
        for node in tree.body:
            is_kind = file.parent in folders and not file.stem.startswith("_")
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                if is_kind and node.name.lower() == kinds.class_name(file.stem):
                    continue  # kinds of several folders may share a name
                modules_of[node.name].add(file)
    twice = {name: files for name, files in modules_of.items() if len(files) > 1}
    assert not twice


def test_json_is_written_by_one_function() -> None:
    # The others hash it, give it to a library, or write strings of TOML.
    others = {"settings/config.py", "data/fingerprint.py", "text/extended.py", "text/tokenizer.py"}
    files = {
        str(path.relative_to(kinds.ROOT))
        for path in kinds.ROOT.rglob("*.py")
        if re.search(r"\bjsons?\.dump", path.read_text(encoding="utf-8"))
    }
    assert not files - {"disk/stored.py", "text/tokenizers/unigram.py", *others}


def test_first_lines_of_docstrings_are_not_bare_genitives() -> None:
    genitives = []
    for file, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                first = (ast.get_docstring(node) or "").partition("\n")[0]
                if re.match(r"(Of|The same)\b", first):
                    genitives.append(f"{file}:{node.lineno}: {first}")
    assert not genitives, "\n".join(genitives)


@pytest.mark.parametrize("folder", FROM_PAPERS)
def test_a_kind_names_its_source(folder: str) -> None:
    for name in kinds.names(folder):
        file = kinds.file_of(folder, name)
        text = file.read_text(encoding="utf-8")
        has_source = "Reference:" in text or re.search(r"\b(19|20)\d\d\b", text)
        assert has_source or f"{folder}/{name}" in WITHOUT_SOURCE, f"{file}: names no source"
