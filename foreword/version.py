"""The version of the package, a semantic one: pyproject.toml reads it from here."""

__version__ = "0.2.0.dev0"
