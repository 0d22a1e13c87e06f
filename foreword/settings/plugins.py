"""Plug-ins: kinds outside the package, in folders laid out like it.

`DIR/objectives/my_objective.py` holds the class `MyObjective`. A folder is searched only if it is
named by `--plugins DIR`, or by the entry point group `foreword.kinds` of an installed package. A
recipe names kinds alone, never a folder, so opening somebody else's recipe or run runs none of
their code. Only the file of a requested kind is imported.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from foreword.errors import UserError, nearest

GROUP = "foreword.kinds"


@dataclass(frozen=True)
class Root:
    """A folder that holds folders of kinds.

    Attributes:
        folder: the path, absolute.
        package: the name under which its modules are imported.
        distribution: name and version of the installed package; "" for a named folder.
    """

    folder: Path
    package: str
    distribution: str = ""

    def kinds(self, folder: str) -> dict[str, Path]:
        """Return the file of each kind in one of its folders (`"objectives"`), by name."""
        path = self.folder / folder
        try:
            return dict(_kinds_in(path, path.stat().st_mtime_ns, _endings_in(folder)))
        except OSError:
            return {}

    def module_name(self, file: Path) -> str:
        """Return the name of the module of a file of this root."""
        return _module_name(self, file)

    def module(self, file: Path) -> ModuleType:
        """Import a file of this root.

        Raises:
            UserError: the file belongs to a plug-in and cannot be imported.
        """
        name = self.module_name(file)
        if self is SHIPPED:
            return importlib.import_module(name)
        try:
            return importlib.import_module(name)
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            raise UserError(_describe(error, file)) from error


@functools.lru_cache(256)
def _kinds_in(folder: Path, changed: int, endings: Sequence[str]) -> dict[str, Path]:
    """Return the files of kinds in a folder that changed last at this time."""
    files = sorted(file for ending in endings for file in folder.glob(f"*{ending}"))
    return {f.stem.rstrip("_"): f for f in files if not f.stem.startswith("_")}


@functools.lru_cache(512)
def _module_name(root: Root, file: Path) -> str:
    return ".".join([root.package, *file.relative_to(root.folder).with_suffix("").parts])


SHIPPED = Root(Path(__file__).parents[1], "foreword")


def toml_reader(folder: str) -> ModuleType:
    """Return the module that makes classes of the TOML files in a folder of kinds."""
    return importlib.import_module(f"{SHIPPED.package}.{folder.replace('/', '.')}._toml")


@functools.cache
def _endings_in(folder: str) -> tuple[str, ...]:
    """Return the endings of the files of kinds in a folder."""
    return (".py", *[".toml"] * (SHIPPED.folder / folder / "_toml.py").is_file())


_named: list[Root] = []  # of the whole process, threads included


def roots() -> tuple[Root, ...]:
    """Return where kinds are searched: the package, named folders, installed packages."""
    return (SHIPPED, *plugged_in())


def plugged_in() -> tuple[Root, ...]:
    """Return the plug-ins: named folders and installed packages."""
    return (*_named, *_installed())


@contextmanager
def plugins(folders: Sequence[Path | str]) -> Iterator[None]:
    """Make the kinds in `folders`, laid out like the package, available until the block ends.

    Raises:
        UserError: there is no such folder, it holds files where no kinds are searched, or a kind in
            it has the name of another.
    """
    # Check the folders.
    new: list[Root] = []
    for folder in folders:
        path = Path(folder).resolve()
        if not path.is_dir():
            raise UserError(f"--plugins {folder}: no such folder")
        digest = hashlib.blake2b(str(path).encode("utf-8", "surrogateescape"), digest_size=6)
        root = Root(path, f"foreword_plugins_{digest.hexdigest()}")
        if root not in (*_named, *new):
            _require_known_folders(root)
            new.append(root)
    _require_distinct((SHIPPED, *_named, *new, *_installed()))
    # Each is a package of its own, so that its modules can be imported.
    for root in new:
        package = ModuleType(root.package)
        package.__path__ = [str(root.folder)]
        sys.modules[root.package] = package
    _named.extend(new)
    try:
        yield
    finally:
        for root in new:
            _named.remove(root)
            for name in [n for n in sys.modules if f"{n}.".startswith(f"{root.package}.")]:
                del sys.modules[name]


@functools.cache
def _installed() -> tuple[Root, ...]:
    """Return the packages that installed distributions name; none of them is imported."""
    installed = []
    for point in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda p: p.value):
        spec = importlib.util.find_spec(point.value.partition(".")[0])
        paths = [] if spec is None else list(spec.submodule_search_locations or ())
        if not paths:
            raise UserError(f"entry point '{point.name}' of {GROUP}: no package '{point.value}'")
        folder = Path(paths[0], *point.value.split(".")[1:]).resolve()
        distribution = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
        installed.append(Root(folder, point.value, distribution))
    _require_distinct((SHIPPED, *installed))
    return tuple(installed)


def _folders(root: Root) -> list[str]:
    """Return the folders of a root that hold files of kinds."""
    parents = {file.relative_to(root.folder).parent for file in _files(root.folder, "[!_]*")}
    hidden = {p for p in parents if any(part.startswith(("_", ".")) for part in p.parts)}
    return sorted(parent.as_posix() for parent in parents - hidden - {Path()})


def _files(root: Path, stem: str = "*") -> list[Path]:
    """Return the files of Python and of kinds below a root."""
    files = (file for ending in (".py", ".toml") for file in root.rglob(f"{stem}{ending}"))
    return sorted(
        f for f in files if f.suffix in _endings_in(f.parent.relative_to(root).as_posix())
    )


def _require_known_folders(root: Root) -> None:
    shipped = _folders(SHIPPED)
    for folder in _folders(root):
        if folder not in shipped:
            raise UserError(
                f"{root.folder / folder}: not a folder of kinds{nearest(folder, shipped)} Files "
                "that kinds share belong in a file or folder whose name begins with '_'"
            )


def _require_distinct(searched: Sequence[Root]) -> None:
    """Check that no two kinds of a folder have one name."""
    for number, root in enumerate(searched[1:], 1):
        for folder in _folders(root):
            if not (SHIPPED.folder / folder).is_dir():
                continue  # other modules of an installed package
            for other in searched[:number]:
                if both := root.kinds(folder).keys() & other.kinds(folder).keys():
                    name = min(both)
                    owner = "the shipped kind" if other is SHIPPED else "the kind in"
                    raise UserError(
                        f"{root.kinds(folder)[name]}: has the name of {owner} "
                        f"{other.kinds(folder)[name]}; rename the file and its class"
                    )


def require_kind(root: Root, file: Path, cls: object, name: str) -> None:
    """Check that a plug-in's file holds a kind.

    Raises:
        UserError: it has no class of its name, or one that is abstract or not a frozen dataclass.
    """
    if root is SHIPPED:
        return
    if not isinstance(cls, type):
        expected = "".join(word.capitalize() for word in name.split("_"))
        raise UserError(f"{file}: has no class {expected}; a kind's class has the name of its file")
    line = inspect.getsourcelines(cls)[1]
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
        raise UserError(f"{file}:{line}: {cls.__name__} does not define {missing}")
    if not is_dataclass(cls) or not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise UserError(
            f"{file}:{line}: {cls.__name__} is not a frozen dataclass; write "
            "@dataclass(frozen=True) above it"
        )


def fault_line(error: BaseException) -> str | None:
    """Return one line on an error raised in a plug-in's code; None for other errors."""
    frames = traceback.extract_tb(error.__traceback__)
    folders = [root.folder for root in plugged_in()]
    for frame in reversed(frames):
        if any(Path(frame.filename).is_relative_to(folder) for folder in folders):
            return _describe(error, Path(frame.filename))
    return None


def _describe(error: BaseException, file: Path) -> str:
    """Return file, line and error of the innermost frame in the plug-in's file."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
    line = lines[-1] if lines else None
    if isinstance(error, SyntaxError) and error.filename:
        file, line = Path(error.filename), error.lineno
    where = file if line is None else f"{file}:{line}"
    return f"{where}: plug-in: {type(error).__name__}: {error}"


def used_by(*settings: Any) -> list[dict[str, Any]]:
    """Return the plug-ins whose kinds occur in `settings`, as `run.json` records them.

    Each has its folder (and its distribution), the kinds that are used (`"objectives/mine"`) and
    the checksums of all its files.
    """
    modules = set(_modules(settings))
    used = []
    for root in plugged_in():
        names = sorted(
            module.removeprefix(f"{root.package}.").replace(".", "/")
            for module in modules
            if module.startswith(f"{root.package}.")
        )
        if names:
            source = {"package": root.distribution} if root.distribution else {}
            used.append(
                {
                    **source,
                    "folder": str(root.folder),
                    "kinds": names,
                    "checksums": _checksums(root.folder),
                }
            )
    return used


def _modules(value: Any) -> Iterator[str]:
    if is_dataclass(value):
        yield type(value).__module__
        for field in fields(value):
            yield from _modules(getattr(value, field.name))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _modules(item)


def _checksums(folder: Path) -> dict[str, str]:
    return {
        file.relative_to(folder).as_posix(): hashlib.blake2b(
            file.read_bytes(), digest_size=16
        ).hexdigest()
        for file in _files(folder)
    }


def require_noted(notes: Sequence[Mapping[str, Any]], run: Path) -> None:
    """Check that the plug-ins of a run are available.

    Args:
        notes: the run's record of them, from `used_by`.
        run: the run folder, for the message.

    Raises:
        UserError: a kind is missing; the message says how to make it available.
    """
    for note in notes:
        for kind in note["kinds"]:
            folder, _, stem = kind.rpartition("/")
            if not any(stem.rstrip("_") in root.kinds(folder) for root in roots()):
                package = note.get("package")
                fix = f"install {package}" if package else f"add --plugins {note['folder']}"
                raise UserError(f"{run}: uses the plug-in kind {kind}, which is missing; {fix}")


def changed(notes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each plug-in that has changed since it was recorded."""
    checksums = {}
    for root in plugged_in():
        for kind in (k for note in notes for k in note["kinds"]):
            if any((root.folder / f"{kind}{end}").is_file() for end in (".py", ".toml")):
                checksums[kind] = _checksums(root.folder)
    return [
        f"the plug-in {kind} has changed since the run began"
        for note in notes
        for kind in note["kinds"]
        if kind in checksums and checksums[kind] != note["checksums"]
    ]
