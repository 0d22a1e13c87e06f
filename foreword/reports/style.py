"""The style sheet of all pages: that of the page that serves models, which begins with it."""

from __future__ import annotations

from foreword.settings import kinds

CSS = (kinds.ROOT / "serving" / "page" / "style.css").read_text(encoding="utf-8")
