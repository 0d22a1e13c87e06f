"""What the book adds to Sphinx: verdicts of claims, hidden answers, pictures, offline equations.

    {claim} NAME     what is claimed, predicted and found: docs/claims.csv, or "not run yet"
    {solution}       an answer, shown on a click
    {picture} NAME   what the function NAME of docs/_figures/ draws, as SVG in the page's colours

Links to files of the repository lead to pages of their text, so that the built book has all it
names; equations become MathML by docutils, which browsers show without a script.
"""

from __future__ import annotations

import csv
import importlib
import inspect
import sys
import tomllib
from collections.abc import Iterator
from html import escape
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, guess_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

import foreword
from foreword.comparison.claim import Claim
from foreword.settings import config, kinds

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
SOURCE = "source"  # folder of the pages of files
LOG = logging.getLogger(__name__)
MATHML = "{http://www.w3.org/1998/Math/MathML}"
NOT_RUN = "not run yet"


def claim_row(name: str, results: Path = DOCS / "claims.csv") -> dict[str, str]:
    """Return what is claimed and what was found; a claim without results has what its file says."""
    if results.is_file():
        with results.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row["claim"] == name:
                    return row
    table = tomllib.loads(config.CLAIMS.find(name).read_text(encoding="utf-8"))["claim"]
    claim = config.build(Claim, table)
    said = {"sentence": claim.sentence, "source": claim.source, "predicted": claim.prediction()}
    return {"claim": name, "verdict": NOT_RUN, **said}


def claim_html(row: dict[str, str]) -> str:
    """Return a claim as a box: sentence, prediction, what its cells gave, and the verdict."""
    said = {key: escape(value) for key, value in row.items()}
    found = ""
    if row.get("number"):
        number, low, high = (f"{float(row[key]):.3g}" for key in ("number", "low", "high"))
        found = f"<p>Measured: {said.get('measured', '')} The predicted number is "
        found += f"<b>{number}</b> ({low} to {high}; {said['seeds']} seeds).</p>"
    return (
        f'<aside class="claim {row["verdict"].split(" at ")[0].replace(" ", "-")}">'
        f'<p class="said">{said["sentence"]}. <span>{said["source"]}</span></p>'
        f"<p>Predicted: {said['predicted']}.</p>{found}"
        f"<p>Verdict: <b>{said['verdict']}</b>.</p>"
        f'<p class="from"><code>foreword claims run {said["claim"]}</code></p></aside>'
    )


class ClaimBox(SphinxDirective):
    """`{claim} NAME`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the box."""
        self.env.note_dependency(str(DOCS / "claims.csv"))
        return [nodes.raw("", claim_html(claim_row(self.arguments[0])), format="html")]


class Solution(SphinxDirective):
    """`{solution}`."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the answer between the tags of `<details>`."""
        begin = '<details class="solution"><summary>Answer</summary>'
        return [
            nodes.raw("", begin, format="html"),
            *self.parse_content_to_nodes(),
            nodes.raw("", "</details>", format="html"),
        ]


class Picture(SphinxDirective):
    """`{picture} NAME`, with a caption."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the drawing and its caption."""
        file = picture_file(self.arguments[0])
        self.env.note_dependency(str(file))
        svg = getattr(importlib.import_module(f"_figures.{file.stem}"), self.arguments[0])()
        return [
            nodes.raw("", f'<figure class="picture">{svg}<figcaption>', format="html"),
            *self.parse_content_to_nodes(),
            nodes.raw("", "</figcaption></figure>", format="html"),
        ]


def picture_file(name: str) -> Path:
    """Return the file of the function that draws a picture."""
    files = sorted((DOCS / "_figures").glob("*.py"))
    return next(file for file in files if f"\ndef {name}() -> str:" in file.read_text("utf-8"))


def api(directive: str, name: str, *options: str) -> str:
    """Return a directive of autodoc in MyST."""
    lines = "".join(f"   :{option}:\n" for option in options)
    return f"```{{eval-rst}}\n.. {directive}:: {name}\n{lines}```\n"


class Functions(SphinxDirective):
    """`{functions}`."""

    def run(self) -> list[nodes.Node]:
        """Return the documentation of every public name of the package."""
        text = ""
        for name in foreword.__all__:
            value = getattr(foreword, name)
            within = vars(value) if isinstance(value, SimpleNamespace) else {}
            directive = "autoexception" if name.endswith("Error") else "autofunction"
            for one in [f"{name}.{verb}" for verb in within] or [name]:
                text += api(directive, f"foreword.{one}")
        return self.parse_text_to_nodes(text)


class Contracts(SphinxDirective):
    """`{contracts}`."""

    def run(self) -> list[nodes.Node]:
        """Return each contract of kinds, with its kinds."""
        text = ""
        for file in sorted((ROOT / "foreword").rglob("_contract.py")):
            folder = file.parent.relative_to(ROOT / "foreword").as_posix()
            if folder.startswith("verbs/"):
                continue
            lines = ""
            for name in kinds.names(folder):
                doc = inspect.getdoc(kinds.load(folder, name)) or ""
                lines += f"- `{name}`: {doc.splitlines()[0]}\n"
            module = f"foreword.{folder.replace('/', '.')}._contract"
            text += f"## {folder}\n\n{api('automodule', module, 'members')}\nKinds:\n\n{lines}\n"
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def mark_code(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Make what is indented after a paragraph of a docstring a block of code."""
    lines[:] = [line.replace("-*", r"-\*") for line in lines]
    for at in range(len(lines) - 1, 0, -1):
        before = next((one for one in reversed(lines[:at]) if one.strip()), " ")
        is_indented = lines[at].startswith("    ") and not before.startswith(" ")
        if is_indented and not lines[at - 1].strip():
            lines[at:at] = ["::", ""]


def link_sources(app: Sphinx, doctree: nodes.document) -> None:
    """Make links to files and folders of the repository lead to pages of their text."""
    shown: set[str] = set()
    here = Path(app.env.doc2path(app.env.docname)).parent
    kinds = addnodes.download_reference | addnodes.pending_xref
    for link in list(doctree.findall(lambda node: isinstance(node, kinds))):
        target = (here / link["reftarget"].split("#")[0]).resolve()
        page = target.with_name(f"{target.name}.md")  # links to pages come without their suffix
        if page.is_file() and not page.is_relative_to(DOCS):
            target = page
        is_file = isinstance(link, addnodes.download_reference) or target == page
        if not target.is_relative_to(ROOT) or not (is_file or target.is_dir()):
            continue
        if target.suffix in (".png", ".ipynb") or target in DOCS.parents or target == DOCS:
            continue
        name = target.relative_to(ROOT).as_posix()
        shown.add(name)
        uri = app.builder.get_relative_uri(app.env.docname, f"{SOURCE}/{name}")
        link.replace_self(nodes.reference("", "", *link.children, refuri=uri, internal=True))
    app.env.metadata[app.env.docname]["shown"] = shown


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield a page for each file and folder that a document links to."""
    for name in sorted(set().union(*(one.get("shown", ()) for one in app.env.metadata.values()))):
        path = ROOT / name
        if path.is_dir():
            files = sorted(one.name for one in path.iterdir() if one.name != "__pycache__")
            body = "".join(f"<li><code>{escape(file)}</code></li>" for file in files)
            body = f"<ul>{body}</ul>"
        else:
            text = path.read_text(encoding="utf-8")
            try:
                lexer = guess_lexer_for_filename(path.name, text)
            except ClassNotFound:
                lexer = TextLexer()
            body = highlight(text, lexer, HtmlFormatter())
        yield (
            f"{SOURCE}/{name}",
            {"title": name, "body": f"<h1>{escape(name)}</h1>{body}"},
            "page.html",
        )


def mathml(node: nodes.math | nodes.math_block, *, is_block: bool) -> str:
    """Return the MathML of an equation; a mistake in it is a warning."""
    try:
        text = latex2mathml.tex2mathml(node.astext(), as_block=is_block)
    except MathError as error:
        LOG.warning("%s: %s", node.astext(), error, location=node)
        return escape(node.astext())
    math = ElementTree.fromstring(text.replace("&ApplyFunction;", "\N{FUNCTION APPLICATION}"))
    for accented in list(math.iter(f"{MATHML}munderover")):
        base, index, mark = accented
        if mark.tag == f"{MATHML}mo" and base.tag != mark.tag:  # docutils puts x's t below its ~
            accented.tag, accented[:] = f"{MATHML}msub", []
            above = ElementTree.SubElement(accented, f"{MATHML}mover", accent="true")
            above.extend([base, mark])
            accented.append(index)
    for one in math.iter():
        one.tail = ""
    return ElementTree.tostring(math, encoding="unicode")


def visit_math(self: Any, node: nodes.math) -> None:
    """Write an equation in the text."""
    self.body.append(mathml(node, is_block=False))
    raise nodes.SkipNode


def visit_displayed(self: Any, node: nodes.math_block) -> None:
    """Write an equation on a line of its own."""
    self.body.append(f'<div class="equation">{mathml(node, is_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directives, the pages of files and the equations."""
    sys.path.append(str(DOCS))
    ElementTree.register_namespace("", MATHML.strip("{}"))
    app.add_directive("claim", ClaimBox)
    app.add_directive("solution", Solution)
    app.add_directive("picture", Picture)
    app.add_directive("functions", Functions)
    app.add_directive("contracts", Contracts)
    app.connect("autodoc-process-docstring", mark_code, priority=100)  # before napoleon
    app.connect("doctree-read", link_sources)
    app.connect("html-collect-pages", source_pages)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displayed, None))
    return {"parallel_read_safe": True}
