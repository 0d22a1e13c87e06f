"""The plot of a comparison, of as many cells as a ladder has."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.image import imread

from foreword.comparison.plot import write_plot


@pytest.mark.filterwarnings("error::UserWarning")
def test_many_cells_leave_room_for_their_curves(tmp_path: Path) -> None:
    """A legend higher than the plot would press the axes to a line."""
    cells = [SimpleNamespace(name=f"{n % 12} layers, {n}") for n in range(39)]
    runs = [SimpleNamespace(cell=cell.name, curve=[(1e12, 4.0), (9e12, 3.0)]) for cell in cells]
    grid = SimpleNamespace(cells=cells, sources=(), measures=())
    results: Any = SimpleNamespace(
        runs=runs, axis=SimpleNamespace(label="FLOPs"), is_one_objective=True,
        comparison=SimpleNamespace(grid=grid, out=tmp_path), best=lambda cell: None,
    )  # fmt: skip
    assert write_plot(results) == ""
    height, width, _ = imread(io.BytesIO((tmp_path / "plot.png").read_bytes())).shape
    assert height > 0.21 * 39 * 150 and width > 1000
