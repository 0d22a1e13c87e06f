"""Whether tests notice: break one line in each of some functions, and run the tests that reach it.

    python benchmarks/mutations.py --seed 1 --out now.json [--count 20] [--rooms nn,train ...]
    python benchmarks/mutations.py --seed 1 --out now.json --both ../before
    python benchmarks/mutations.py --functions now.json --root ../before --out before.json

Functions are drawn by the seed, as many of each room as of the others; with `--both`, only such as
another checkout has too. One mutation is drawn for each: a comparison, condition or constant
changed, + and - exchanged, a result None, an argument dropped. A checkout is copied first, and the
copy is broken, never the checkout. The tests run are those whose file imports the module, itself or
through one other module; a kind counts as imported where the contract of its folder is. They stop
at the first failure, and one that also fails without the mutation does not count.

With `--functions`, the same functions get the same mutations in another checkout, where it has
them: the same file and name, or else the one function of that name (`--moved old.py=new.py` where
this does not find it). A mutation that survives is a missing test, or changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
ROOMS = (
    *("objectives", "layouts", "nn", "train", "data"),  # the heart
    *("tuning", "verbs", "tables", "runs", "comparison"),
)
COPIED: tuple[str, ...] = (
    "foreword",
    "tests",
    "benchmarks",
    "docs",
    "README.md",
    "CHANGELOG.md",
    "pyproject.toml",
)
COPIED += ("Makefile", "constraints.txt", "LICENSE", ".gitignore", ".ci")
PAIRS: tuple[tuple[type, type], ...] = (
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.In, ast.NotIn),
)
PAIRS += ((ast.Is, ast.IsNot), (ast.Add, ast.Sub), (ast.Mult, ast.FloorDiv), (ast.And, ast.Or))
EXCHANGED: dict[type, type] = dict([*PAIRS, *((second, first) for first, second in PAIRS)])
KINDS = 2  # a function has at least so many kinds of mutations: not the return of a constant alone
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+\.py(?:::\S+?(?:\[.*?\])?)?)(?: - .*)?$", re.M)
PER_TEST = 120  # seconds; a mutation may loop for ever
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mutation:
    """One line broken: the function, what is done, and the code before and after."""

    function: str
    line: int
    kind: str
    before: str
    after: str


@dataclass(frozen=True)
class Place:
    """A mutation and the bytes of its file that it replaces."""

    mutation: Mutation
    start: int
    end: int


@dataclass(frozen=True)
class Outcome:
    """What became of a mutation, and by which test."""

    mutation: Mutation
    outcome: str
    test: str = ""
    files: int = 0
    seconds: float = 0.0


def functions(file: Path, root: Path) -> dict[str, Function]:
    """Return the functions of a file by name: `nn/masks.py:Mask.dense`."""
    found: dict[str, Function] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                found[prefix + child.name] = child
            if isinstance(child, ast.ClassDef):
                visit(child, f"{prefix}{child.name}.")

    visit(ast.parse(file.read_bytes()), f"{file.relative_to(root / 'foreword')}:")
    return found


@cache
def all_functions(root: Path, *rooms: str) -> dict[str, Function]:
    """Return the functions of rooms that can be broken in several ways."""
    files = sorted(
        {file for room in rooms or ("",) for file in (root / "foreword" / room).rglob("*.py")}
    )
    named = {name: node for file in files for name, node in functions(file, root).items()}
    return {
        name: node for name, node in named.items() if len({c[1] for c in _changes(node)}) >= KINDS
    }


def _changes(function: Function) -> Iterator[tuple[ast.AST, str, ast.AST]]:
    """Yield what can be broken in a function's body: the node, how, and the node in its place."""
    for statement in function.body:
        for node in ast.walk(statement):
            changed = copy.copy(node)
            match changed:
                case ast.Compare(ops=[op, *more]) if type(op) in EXCHANGED:
                    changed.ops = [EXCHANGED[type(op)](), *more]
                    yield node, "comparison", changed
                case ast.BinOp(op=op) if type(op) in EXCHANGED and not _is_text(changed):
                    changed.op = EXCHANGED[type(op)]()
                    yield node, "arithmetic", changed
                case ast.BoolOp(op=op):
                    changed.op = EXCHANGED[type(op)]()
                    yield node, "and/or", changed
                case ast.Constant(value=bool(value)):
                    changed.value = not value
                    yield node, "constant", changed
                case ast.Constant(value=int() | float() as value):
                    changed.value = value + 1
                    yield node, "constant", changed
                case ast.Return(value=ast.expr()):
                    changed.value = ast.Constant(None)
                    yield node, "return None", changed
                case ast.Call(keywords=[_, *_]):
                    changed.keywords = changed.keywords[:-1]
                    yield node, "argument dropped", changed
            if isinstance(node, ast.If | ast.IfExp | ast.While):
                negated = ast.UnaryOp(ast.Not(), node.test)
                yield node.test, "condition negated", negated


def _is_text(node: ast.BinOp) -> bool:
    parts = (node.left, node.right)
    return any(isinstance(p, ast.JoinedStr | ast.List | ast.Tuple) for p in parts) or any(
        isinstance(p, ast.Constant) and isinstance(p.value, str) for p in parts
    )


def places(file: Path, name: str, function: Function) -> list[Place]:
    """Return the mutations of a function; none within the text of an f-string or a `raise`."""
    text = file.read_bytes()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    left_out = {
        id(inner)
        for node in ast.walk(function)
        if isinstance(node, ast.JoinedStr | ast.Raise)
        for inner in ast.walk(node)
    }
    found = []
    for node, kind, changed in _changes(function):
        if id(node) not in left_out and isinstance(node, ast.expr | ast.stmt):
            end_line, end_column = node.end_lineno or 0, node.end_col_offset or 0
            start = starts[node.lineno - 1] + node.col_offset
            after = ast.unparse(ast.fix_missing_locations(changed))
            if isinstance(node, ast.expr):
                after = f"({after})"
            before = ast.unparse(node)
            mutation = Mutation(name, node.lineno, kind, before, after)
            found.append(Place(mutation, start, starts[end_line - 1] + end_column))
    return found


def drawn(
    root: Path,
    seed: int,
    count: int,
    rooms: Iterable[str],
    both: Path | None,
    moved: dict[str, str],
) -> list[Place]:
    """Draw functions, room by room in turn, and a mutation of each."""
    rng = random.Random(seed)
    queues = []
    for room in rooms:
        names = list(all_functions(root, room))
        rng.shuffle(names)
        queues.append(names)
    chosen: list[Place] = []
    while any(queues) and len(chosen) < count:
        for queue in queues:
            while queue and len(chosen) < count:
                found = _places(root, queue.pop(0))
                if both:
                    found = [place for place in found if again(place.mutation, both, moved)]
                if kinds := sorted({place.mutation.kind for place in found}):
                    kind = rng.choice(kinds)  # of each as many, though some are everywhere
                    chosen.append(rng.choice([p for p in found if p.mutation.kind == kind]))
                    break
    return chosen


def _places(root: Path, name: str) -> list[Place]:
    file = root / "foreword" / name.partition(":")[0]
    return places(file, name, functions(file, root)[name])


def counterpart(name: str, there: Iterable[str], moved: dict[str, str]) -> str | None:
    """Return a function's name in another checkout, where one function alone can be meant."""
    path, _, function = name.partition(":")
    same = f"{moved.get(path, path)}:{function}"
    if same in there:
        return same
    named = [other for other in there if other.partition(":")[2] == function]
    close = [other for other in named if Path(other.partition(":")[0]).name == Path(path).name]
    return next((found[0] for found in (close, named) if len(found) == 1), None)


def again(mutation: Mutation, root: Path, moved: dict[str, str]) -> Place | None:
    """Return a mutation in another checkout, None where that has no such line."""
    name = counterpart(mutation.function, all_functions(root), moved)
    for place in _places(root, name) if name else ():
        if (place.mutation.kind, place.mutation.before) == (mutation.kind, mutation.before):
            return place
    return None


class Imports:
    """Which files of tests import a module of a checkout, told from their text alone."""

    def __init__(self, root: Path) -> None:
        self._root = root
        files = [file for top in ("foreword", "tests") for file in (root / top).rglob("*.py")]
        self._modules = {_module(file, root): file for file in files}
        self._imported = {name: set(self._of(name, file)) for name, file in self._modules.items()}

    def _of(self, name: str, file: Path) -> Iterator[str]:
        package = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
        for node in ast.walk(ast.parse(file.read_bytes())):
            match node:
                case ast.Import(names=names):
                    yield from (alias.name for alias in names)
                case ast.ImportFrom(module=module, names=names, level=level):
                    up = package[: len(package) - level + 1] if level else []
                    source = ".".join([*up, *filter(None, [module])])
                    yield from (source, *(f"{source}.{alias.name}" for alias in names))
                case ast.Attribute(
                    value=ast.Name("foreword"), attr=attr
                ):  # imported when asked for
                    yield from (f"foreword.{room}.{attr}" for room in ("verbs", "api"))

    def tests(self, file: Path) -> list[str]:
        """Return the test files that import a file, and then those through one module between."""
        module = _module(file, self._root)
        means = {module}
        if (file.parent / "_contract.py").exists():
            means.add(f"{module.rpartition('.')[0]}._contract")
        users = {name for name, imported in self._imported.items() if imported & means}
        between = {name for name in users if not name.endswith("__init__")}
        indirect = {name for name, imported in self._imported.items() if imported & between}
        ordered = [*sorted(users), *sorted(indirect - users)]
        files = [self._modules[name] for name in ordered]
        tests = [
            f for f in files if f.name.startswith("test_") and (self._root / "tests") in f.parents
        ]
        return [str(f.relative_to(self._root)) for f in tests]


def _module(file: Path, root: Path) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def copied(root: Path, folder: Path) -> Path:
    """Copy what tests need of a checkout."""
    for name in COPIED:
        if (root / name).is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(root / name, folder / name, ignore=ignore)
        elif (root / name).exists():
            shutil.copy2(root / name, folder / name)
    return folder


def write(file: Path, text: bytes) -> None:
    """Write a module whose compiled form, told by second and size, may not be used again."""
    file.write_bytes(text)
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        compiled.unlink()


@dataclass(frozen=True)
class Suite:
    """The tests of a copied checkout, and how to run them."""

    tree: Path
    python: Path
    marks: str
    workers: str = "2"
    limit: float = 600.0  # seconds

    def first_failure(self, tests: Iterable[str]) -> str:
        """Return the name of the first test that fails, "" if none does."""
        options = ["-x", "-q", "-n", self.workers, "-m", self.marks, "--timeout", str(PER_TEST)]
        env = {**os.environ, "PYTHONPATH": str(self.tree)}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        process = subprocess.Popen(
            [str(self.python), "-m", "pytest", *options, "--tb=no", "-rfE", *tests],
            cwd=self.tree,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            printed = process.communicate(timeout=self.limit)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            raise
        if failed := FAILED.search(printed):
            return failed[1]
        if process.returncode not in {0, 5}:
            end = printed[-2000:]
            raise SystemExit(f"pytest ended with status {process.returncode}:\n{end}")
        return ""

    def tried(self, place: Place, imports: Imports, first: str = "") -> Outcome:
        """Break the line in the copy, run the tests, `first` before others, and put it right."""
        file = self.tree / "foreword" / place.mutation.function.partition(":")[0]
        whole, began, left_out = file.read_bytes(), time.monotonic(), list[str]()
        tests = sorted(imports.tests(file), key=lambda test: test != first)

        def outcome(word: str, test: str = "") -> Outcome:
            return Outcome(place.mutation, word, test, len(tests), round(time.monotonic() - began))

        while tests:
            write(file, whole[: place.start] + place.mutation.after.encode() + whole[place.end :])
            try:
                failed = self.first_failure([*tests, *(f"--deselect={name}" for name in left_out)])
            except subprocess.TimeoutExpired:
                return outcome("out of time")
            finally:
                write(file, whole)
            if not failed:
                break
            if "::" not in failed or not self.first_failure([failed]):
                return outcome("caught", failed)
            left_out.append(failed)  # it fails in any case
        return outcome("survived")


def table_line(made: Outcome) -> str:
    """Return what became of a mutation, and below it which test caught it."""
    mutation = made.mutation
    what = f"{mutation.kind}: {mutation.before} -> {mutation.after}"
    first = f"{made.outcome:11} {made.seconds:5.0f} s  {mutation.function}:{mutation.line}"
    return f"{first}  {what[:100]}\n{'':21}{made.test or f'{made.files} files'}"


def main() -> None:
    """Draw or read the mutations, try each, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--root", type=Path, default=HERE)
    parser.add_argument("--both", type=Path)
    parser.add_argument("--functions", type=Path)
    parser.add_argument("--moved", action="append", default=[], metavar="OLD=NEW")
    parser.add_argument("--rooms", default=",".join(ROOMS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--marks", default="not gpu and not full")
    parser.add_argument("--workers", default="2", help="processes that run the tests")
    parser.add_argument("--limit", type=float, default=600, help="seconds for each mutation")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dry-run", action="store_true", help="write the mutations alone")
    given = parser.parse_args()
    root, moved = given.root.resolve(), dict(pair.split("=") for pair in given.moved)
    python, outcomes = root / ".venv" / "bin" / "python", list[Outcome]()
    with tempfile.TemporaryDirectory() as folder:
        tree = copied(root, Path(folder))
        suite = Suite(tree, python, given.marks, given.workers, given.limit)
        imports, chosen = Imports(tree), list[tuple[Place | Mutation, str]]()
        if given.functions:
            for line in json.loads(given.functions.read_text()):
                mutation = Mutation(**line["mutation"])
                first = line["test"].partition("::")[0]  # it may catch it here too
                chosen.append((again(mutation, tree, moved) or mutation, first))
        else:
            rooms = given.rooms.split(",")
            found = drawn(tree, given.seed, given.count, rooms, given.both, moved)
            chosen += [(place, "") for place in found]
        for place, first in chosen:
            if isinstance(place, Mutation):
                outcomes.append(Outcome(place, "absent"))
            elif given.dry_run:
                outcomes.append(Outcome(place.mutation, "drawn"))
            else:
                outcomes.append(suite.tried(place, imports, first))
            print(table_line(outcomes[-1]), flush=True)
            given.out.write_text(json.dumps([asdict(o) for o in outcomes], indent=1))
    words = [made.outcome for made in outcomes]
    print(", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words)))


if __name__ == "__main__":
    main()
