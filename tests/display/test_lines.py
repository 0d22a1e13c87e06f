"""Lines for people on the error stream."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len

from foreword.display import lines

COMMAND = "'foreword predict runs/a folder/tuned/reviews FILE'"
REMARKS = [
    f"  {'a remark of many words ' * 9}".rstrip(),
    f"what was tuned on few labels is in the folder below, so that {COMMAND} uses it",
    f"tuned model: /{'folder-' * 20}",
    "좋은 영화 " * 20,
]


class Screen(io.StringIO):
    """An error stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("remark", REMARKS)
def test_a_long_line_breaks_at_spaces_in_a_terminal_alone(
    remark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines.err, "_width", 60)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.stderr", screen := Screen())
    lines.say(remark)
    shown = screen.getvalue().splitlines()
    assert len(shown) > 1
    assert " ".join(" ".join(shown).split()) == " ".join(remark.split())
    assert all(cell_len(line) < 60 or len(line.split()) == 1 for line in shown)
    indent = len(remark) - len(remark.lstrip()) + 2
    assert all(line.startswith(" " * indent) for line in shown[1:])
    assert COMMAND not in remark or any(COMMAND in line for line in shown)
    monkeypatch.setattr("sys.stderr", pipe := io.StringIO())
    lines.say(remark)
    assert pipe.getvalue() == f"{remark}\n"
