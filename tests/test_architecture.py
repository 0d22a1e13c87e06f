"""The promises of docs/architecture.md that no other tool checks."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import grimp
import pytest

from foreword import kinds

# Classes that have one name and are no kinds, to be renamed; no other may be added.
SAME_NAMES = {
    *("Bar", "Evaluation", "Examples", "Mask", "Reading", "Table"),
}
BARE_GENITIVES = 37  # first lines of docstrings that are left to rewrite; may only fall
CONTRACTS = {
    "data/packing": "data/packing/_contract.py",
    "interop/hf": "interop/family.py",
    "layouts": "layouts/_contract.py",
    "models": "nn/model.py",
    "ngrams/smoothing": "ngrams/smooth.py",
    "nn/attentions": "nn/attention_kind.py",
    "nn/lm_heads": "nn/lm_head_kind.py",
    "nn/positions": "nn/position.py",
    "nn/source_attentions": "nn/source_attention.py",
    "objectives": "objectives/_contract.py",
    "probes": "probes/_contract.py",
    "train/optimizers": "train/contracts.py",
    "train/schedules": "train/contracts.py",
    "tune/strategies": "tune/contracts.py",
    "tune/tasks": "tune/contracts.py",
    "vectors/architectures": "vectors/contract.py",
    "vectors/outputs": "vectors/contract.py",
}
WITHOUT_CONTRACT = {"data/readers", "interop/formats", "text/tokenizers"}  # to be written
# Kinds that come from no paper.
WITHOUT_SOURCE = {
    *("layouts/decoder", "layouts/encoder", "nn/lm_heads/softmax", "nn/source_attentions/mean"),
    *("train/optimizers/sgd", "text/tokenizers/char", "text/tokenizers/word"),
    *("train/schedules/constant", "train/schedules/cosine", "train/schedules/linear"),
}
FROM_PAPERS = (
    *("objectives", "layouts", "models", "nn/attentions", "nn/positions", "nn/lm_heads"),
    *("nn/source_attentions", "ngrams/smoothing", "train/optimizers", "train/schedules"),
    *("text/tokenizers", "vectors/architectures", "vectors/outputs", "probes"),
)


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for file in sorted(kinds.ROOT.rglob("*.py")):
        yield file.relative_to(kinds.ROOT), ast.parse(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("of_types", [False, True], ids=["runtime", "types"])
def test_modules_import_each_other_in_no_circle(of_types: bool) -> None:
    graph = grimp.build_graph("foreword", exclude_type_checking_imports=not of_types)
    imports = {m: set(graph.find_modules_directly_imported_by(m)) for m in graph.modules}
    if of_types:  # in the centre, not even the types of one module are those of another's caller
        centre = re.compile(r"foreword\.(nn|models|layouts|objectives)\b")
        imports = {m: others for m, others in imports.items() if centre.match(m)}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        steps = [f"{one} imports {other}" for other, one in pairwise(error.args[1])]
        pytest.fail(f"import circle: {'; '.join(steps)}")


def test_every_folder_of_kinds_has_one_contract_file() -> None:
    assert set(kinds.folders()) == CONTRACTS.keys() | WITHOUT_CONTRACT
    for folder, file in CONTRACTS.items():
        text = (kinds.ROOT / file).read_text(encoding="utf-8")
        assert re.search(r"^class \w+\(.*(ABC|Protocol|Ranged|Architecture)", text, re.M), folder


def test_class_names_are_defined_once_but_for_kinds() -> None:
    folders = {Path(folder) for folder in kinds.folders()}
    found: dict[str, set[Path]] = defaultdict(set)
    for file, tree in trees():
        for node in tree.body:
            is_kind = file.parent in folders and not file.stem.startswith("_")
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                if is_kind and node.name.lower() == kinds.class_name(file.stem):
                    continue  # kinds of several folders may share a name
                found[node.name].add(file)
    twice = {name: files for name, files in found.items() if len(files) > 1}
    assert not twice.keys() - SAME_NAMES, {n: f for n, f in twice.items() if n not in SAME_NAMES}


def test_first_lines_of_docstrings_are_no_bare_genitives() -> None:
    found = []
    for file, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                first = (ast.get_docstring(node) or "").partition("\n")[0]
                if re.match(r"(Of|The same)\b", first):
                    found.append(f"{file}:{node.lineno}: {first}")
    assert len(found) <= BARE_GENITIVES, "\n".join(found)


@pytest.mark.parametrize("folder", FROM_PAPERS)
def test_a_kind_names_its_source(folder: str) -> None:
    for name in kinds.names(folder):
        file = kinds.file_of(folder, name)
        text = file.read_text(encoding="utf-8")
        has_source = "Reference:" in text or re.search(r"\b(19|20)\d\d\b", text)
        assert has_source or f"{folder}/{name}" in WITHOUT_SOURCE, f"{file}: names no source"
