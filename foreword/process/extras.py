"""Packages that are installed with an extra, `foreword[data]`."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from foreword.errors import UserError


def require_packages(names: Sequence[str], what: str, extra: str) -> None:
    """Check that packages are installed, without importing them.

    Args:
        names: the packages.
        what: requires them, as the beginning of a sentence: "cleaning requires".
        extra: installs them.

    Raises:
        UserError: one is missing.
    """
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"{what} {', '.join(missing)}: pip install 'foreword[{extra}]'")
