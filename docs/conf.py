"""How Sphinx builds these pages: `make docs`. Markdown by MyST; the two reference pages come from the code itself."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

project = "ooc"
author = "the authors of ooc"
release = importlib.metadata.version("ooc")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]

myst_enable_extensions = ["attrs_inline", "colon_fence"]
myst_heading_anchors = 3
smartquotes = False  # options begin with two hyphens
default_role = "literal"  # docstrings put code between single backticks
highlight_language = "none"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"ooc {release}"
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}


def _fill(_app: object, page: str, source: list[str]) -> None:
    """Add to a reference page what the code says."""
    from reference import REFERENCES

    if page in REFERENCES:
        source[0] += REFERENCES[page]()


def _as_prose(*given: object) -> None:
    """Docstrings are prose with code between single backticks: keep RST from seeing more than that in them."""
    lines: list[str] = given[5]  # type: ignore[assignment]
    parts = "\n".join(lines).split("`")
    parts[::2] = [re.sub(r"([_*|])", r"\\\1", part) for part in parts[::2]]
    lines[:] = re.sub(r"\n\n(?=    )", "\n\n::\n\n", "`".join(parts)).split("\n")


def _says_nothing(*given: object) -> bool | None:
    """Leave out what Python says of the fields of a named tuple; their docstring is that of the tuple."""
    thing = given[3]
    return True if (getattr(thing, "__doc__", "") or "").startswith("Alias for field number") else None


def setup(app: object) -> None:
    app.connect("source-read", _fill)  # type: ignore[attr-defined]
    app.connect("autodoc-process-docstring", _as_prose)  # type: ignore[attr-defined]
    app.connect("autodoc-skip-member", _says_nothing)  # type: ignore[attr-defined]
