"""The notebooks of docs/notebooks/ run, at a tiny size, and keep the outputs of a run."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import numpy
import pytest

from foreword.demonstration import corpus, installed
from tests import shelf

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
NAMES = sorted(file.stem for file in FOLDER.glob("*.ipynb"))
TINY = {
    r"^STEPS = \d+": "STEPS = 3",
    r"^EPOCHS = \d+": "EPOCHS = 1",
    r"seeds=2": "seeds=1",
    r"^VOCAB = \d+": "VOCAB = 500",
    r"^FLOPS = .*": "FLOPS = [7e9, 1e10]",
}
every_notebook = pytest.mark.parametrize("name", NAMES)


def opened(name: str) -> nbformat.NotebookNode:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def make_text(folder: Path) -> None:
    site = Path(numpy.__file__).parents[1]
    packages = [installed.Package.at(site / name, name) for name in ("numpy", "scipy", "sklearn")]
    limits = corpus.Limits(characters=100_000, packages=3, train=5, test=5)
    corpus.build(folder, packages, limits)


@every_notebook
def test_a_notebook_begins_with_how_to_install_and_has_outputs(name: str) -> None:
    notebook = opened(name)
    nbformat.validate(notebook)
    first, second, *cells = notebook.cells
    assert "In Colab" in first.source
    assert second.source.startswith("# %pip install")
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert any("import foreword" in cell.source for cell in code)
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert len(outputs) >= len(code) // 2
    assert "/work/" not in str(outputs)
    assert f"({name}.ipynb)" in (FOLDER / "index.md").read_text(encoding="utf-8")


@pytest.mark.full
@pytest.mark.timeout(900)
@every_notebook
def test_a_notebook_runs(name: str, tmp_path: Path) -> None:
    from nbclient import NotebookClient

    shelf.copied("notebook text", make_text, tmp_path / "foreword_notebook" / "text")
    notebook = opened(name)
    for cell in notebook.cells:
        for pattern, tiny in TINY.items():
            cell.source = re.sub(pattern, tiny, cell.source, flags=re.M)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
