"""Write the hashes of the shipped labs anew, after a question was changed.

python -m tests.labs.make [LAB...]
"""

from __future__ import annotations

import sys
from dataclasses import replace

from foreword.labs import lab as labs
from foreword.settings import config
from tests.labs.solutions import SOLUTIONS


def made(name: str) -> labs.Lab:
    """Return a shipped lab with hashes of the answers that its solution has now."""
    lab, solution = labs.load(name), SOLUTIONS[name]()
    parts = []
    for part in lab.parts:
        right, *wrong = solution[part.name]
        assert len(wrong) == len(part.wrong), f"{name}: {part.name}: as many hints as answers"
        hints = zip(part.wrong, wrong, strict=True)
        expected = tuple(replace(one, answer=answer, hash="") for one, answer in hints)
        within = part.width / 2 if part.width else part.within
        parts.append(
            replace(
                part, right=right, within=within, width=None, starts=(), hash="", wrong=expected
            )
        )
    return replace(lab, parts=tuple(parts)).sealed()


if __name__ == "__main__":
    for each in sys.argv[1:] or config.LABS.names():
        config.LABS.find(each).write_text(labs.dumps(made(each)), encoding="utf-8")
