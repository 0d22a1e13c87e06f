"""The page of a lab, in Markdown: what `foreword lab show` prints, and what `docs/labs/` holds."""

from __future__ import annotations

from foreword.labs.lab import Lab, LabPart

EMPTY = {"bool": "false", "int": "0", "text": '""', "float": "0.0"}


def page(name: str, lab: Lab) -> str:
    """Return the page of a lab.

    Args:
        name: how commands call it.
        lab: the lab.
    """
    parts = [_part(number, part) for number, part in enumerate(lab.parts, 1)]
    answers = "\n".join(f"# {part.name} = {_empty(part)}" for part in lab.parts)
    return (
        f"# {lab.title}\n\n*About {lab.minutes} minutes.*\n\n{lab.text.strip()}\n\n"
        + "\n\n".join(parts)
        + "\n\n## Check your answers\n\nWrite those you have in a file, `answers.toml`:\n\n"
        + f"```toml\n{answers}\n```\n\n    foreword lab check {name} answers.toml\n"
    )


def _part(number: int, part: LabPart) -> str:
    """Return a question, and what its answer has to be."""
    within = part.within or (part.width or 0) / 2
    near = f", within {within:g}" if within else ""
    order = ", in any order" if part.sorted else ""
    how = f" {part.measured}" if part.measured else ""
    text = part.question.strip()
    return f"## {number}. `{part.name}`\n\n{text}\n\n*Answer: {part.expected}{near}{order}.*{how}"


def _empty(part: LabPart) -> str:
    return "[]" if part.depth else EMPTY[part.item]
