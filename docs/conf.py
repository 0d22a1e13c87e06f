"""The book: Sphinx with MyST and furo, offline; equations are MathML, made by docutils."""

import re
import sys
from pathlib import Path

from foreword.serving.bundle import FOLDER
from foreword.version import __version__

sys.path.append(str(Path(__file__).parent / "_ext"))


CSS = (FOLDER / "style.css").read_text(encoding="utf-8")
COLOURS = re.findall(r"--(\w+): light-dark\((#\w+), (#\w+)\)", CSS)  # also of the pictures

project = "Foreword"
copyright = "the authors of Foreword; Apache-2.0"  # noqa: A001
release = __version__
language = "en"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "book",  # docs/_ext
]
exclude_patterns = ["_build", "examples"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_dmath_allow_digits = False  # "$5 and $6" is money
myst_dmath_allow_space = False
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_use_ivar = True  # fields are documented once, under their class
default_role = "code"  # docstrings mark code by single backticks
add_module_names = False
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"Foreword {release}"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {name: light for name, light, _ in COLOURS},
    "dark_css_variables": {name: dark for name, _, dark in COLOURS},
    "top_of_page_buttons": [],
}
copybutton_exclude = ".linenos, .gp"
