"""How Sphinx builds these pages: `make docs`. Markdown by MyST; reference pages come from the code itself."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path
from typing import Any

import docutils.nodes
import latex2mathml.converter

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

project = "ooc"
author = "the authors of ooc"
release = importlib.metadata.version("ooc")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]

myst_enable_extensions = ["attrs_inline", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
html_math_renderer = "mathml"
smartquotes = False  # options begin with two hyphens
default_role = "literal"  # docstrings put code between single backticks
highlight_language = "none"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_google_docstring = False
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"ooc {release}"
html_favicon = "images/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["ooc.css"]
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}


def _fill(_app: object, page: str, source: list[str]) -> None:
    """Fill the generated part into a reference page."""
    from reference import filled

    source[0] = filled(page, source[0])


def _as_prose(*given: object) -> None:
    """Docstrings are prose with code between single backticks: keep Sphinx from parsing them as RST beyond that."""
    lines: list[str] = given[5]  # type: ignore[assignment]
    paragraphs = re.split(r"\n{2,}", "\n".join(lines))
    lines[:] = "\n\n".join(_paragraph(text) for text in paragraphs).split("\n")


def _paragraph(text: str) -> str:
    """Return a paragraph as RST: a formula or an example, which is indented, unchanged; otherwise as prose."""
    if text.startswith("    "):
        return f"::\n\n{text}"
    linked = re.sub(r"`?docs/([\w-]+)\.md`?", r":doc:`/\1`", text)
    parts = linked.split("`")
    parts[::2] = [re.sub(r"([*|]|(?<=\w)_(?!\w))", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def _says_nothing(*given: object) -> bool | None:
    """Leave out Python's default docstrings of the fields of a named tuple; the tuple's docstring describes them."""
    thing = given[3]
    return True if (getattr(thing, "__doc__", "") or "").startswith("Alias for field number") else None


def _write_formula(translator: Any, node: Any) -> None:
    """Write a formula as MathML, which browsers show without a script."""
    tag, display = ("div", "block") if isinstance(node, docutils.nodes.math_block) else ("span", "inline")
    translator.body.append(
        f'<{tag} class="math">{latex2mathml.converter.convert(node.astext(), display=display)}</{tag}>'
    )
    raise docutils.nodes.SkipNode


def setup(app: Any) -> None:
    app.add_html_math_renderer("mathml", (_write_formula, None), (_write_formula, None))
    app.connect("source-read", _fill)
    app.connect("autodoc-process-docstring", _as_prose, priority=400)
    app.connect("autodoc-skip-member", _says_nothing)
