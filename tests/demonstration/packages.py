"""Small packages of made-up documentation."""

from __future__ import annotations

import random
from pathlib import Path

from foreword.demonstration.installed import Package

SUBJECTS = {
    "harbour": "ship sail anchor mast deck rope tide wharf pilot crew".split(),  # noqa: SIM905
    "kitchen": "oven pan flour salt butter knife plate stove bread soup".split(),  # noqa: SIM905
    "orchard": "apple pear branch root blossom ladder basket frost soil bee".split(),  # noqa: SIM905
}


def sentence(words: list[str], rng: random.Random) -> str:
    """Return a unique sentence: it shares no eight words in a row with another."""
    first, second, third = rng.choices(words, k=3)
    one, two, three, four = ("".join(rng.choices("aeioukmnprst", k=9)) for _ in range(4))
    return (
        f"The {first} of the {one} is in a {second} with {two} and it may be {three} for the "
        f"{third} of {four}."
    )


def make(root: Path, files: int = 24, functions: int = 4) -> list[Package]:
    """Write packages, with one in place of Python's own library, into `root`."""
    rng = random.Random(1)
    packages = []
    for name, words in {**SUBJECTS, "python": ["list", "value", "string", "loop"]}.items():
        folder = root / name
        folder.mkdir(parents=True)
        for n in range(files):
            body = []
            for k in range(functions):
                prose = "\n\n    ".join(sentence(words, rng) for _ in range(3))
                body.append(f'def f{k}():\n    """{prose}\n\n    Uses {name}.things.\n    """\n')
            (folder / f"part{n}.py").write_text("\n".join(body), encoding="utf-8")
        packages.append(Package.at(folder, name))
    return packages
