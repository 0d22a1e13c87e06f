"""The documentation on this machine: docstrings of Python's library and of installed packages.

Files are parsed, never imported, so none of their code is run.
"""

from __future__ import annotations

import ast
import sysconfig
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

LIBRARY = "python"  # name of Python's own library
LARGEST = 400_000  # bytes; larger sources are mostly generated
# Tests document nothing; the others are copies of packages or generated.
LEFT_OUT = frozenset(
    """
    test tests testing _vendor vendor _vendored extern externals _extern site-packages
    dist-packages lib2to3 idlelib __pycache__
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Package:
    """The source files of a package.

    Attributes:
        name: `numpy`, or `python` for Python's own library.
        root: folder of the package.
        files: the files in a shuffled order that is equal on every machine.
    """

    name: str
    root: Path
    files: tuple[Path, ...]

    @classmethod
    def at(cls, root: Path, name: str) -> Package:
        """Return the package in a folder."""
        files = (
            path
            for path in root.rglob("*.py")
            if LEFT_OUT.isdisjoint(path.relative_to(root).parts) and "generated" not in path.name
        )
        return cls(name, root, tuple(sorted(files, key=lambda path: text_hash(_key(root, path)))))

    def key(self, path: Path) -> str:
        """Return a name of one of the files that does not depend on where it is installed."""
        return _key(self.root, path)


def packages() -> list[Package]:
    """Return Python's library and the installed packages, sorted by name."""
    paths = sysconfig.get_paths()
    library = Path(paths["stdlib"])
    all_packages = [Package.at(library, LIBRARY)]
    seen = set()
    for root in dict.fromkeys(Path(paths[key]) for key in ("purelib", "platlib")):
        for folder in sorted(root.glob("*/__init__.py")) if root != library else ():
            name = folder.parent.name
            if name not in seen and name not in LEFT_OUT:
                seen.add(name)
                all_packages.append(Package.at(folder.parent, name))
    return sorted(all_packages, key=lambda package: package.name)


def docstrings(source: bytes) -> list[str]:
    """Return the docstrings of a module, its classes and functions.

    Raises:
        SyntaxError: the source is not valid in this version of Python.
        ValueError: it contains null bytes.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings concern the module's authors
        tree = ast.parse(source)
    return [text for node in _statements(tree) for text in _texts(node)]


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield a module and all statements in it, without the many nodes of their expressions."""
    left: deque[ast.AST] = deque([tree])
    while left:
        node = left.popleft()
        yield node
        for block in ("body", "handlers", "orelse", "finalbody", "cases"):
            left.extend(getattr(node, block, ()))


def _texts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        if text := ast.get_docstring(node):
            yield text
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
        # pydoc_data.topics: the language reference, as one table of texts.
        names = [name.id for name in node.targets if isinstance(name, ast.Name)]
        for value in node.value.values if names == ["topics"] else []:
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.value


def _key(root: Path, path: Path) -> str:
    return f"{root.name}/{path.relative_to(root).as_posix()}"


def text_hash(text: str) -> bytes:
    """Return a hash that depends on the text alone, to shuffle or split by."""
    return blake2b(text.encode(), digest_size=8).digest()
