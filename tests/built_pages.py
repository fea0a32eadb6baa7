"""Pages of the documentation as a browser shows them, and faults that readers should not see."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_VERBATIM = ("pre", "code", "script", "style")  # what is in them may be markup
_VOID = ("area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr")


class BuiltPage(HTMLParser):
    """A page built by Sphinx.

    title: first heading.
    prose: text of the main part, without code and math.
    loaded: addresses of the scripts, styles and pictures that a browser loads.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.title, self.text, self.prose = "", "", ""
        self.links: list[str] = []
        self.loaded: list[str] = []
        self._open: list[tuple[str, bool]] = []  # elements, and whether what is in them is verbatim
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if address := found.get("src") or (tag == "link" and found.get("rel") != "canonical" and found.get("href")):
            self.loaded.append(address)
        if tag in _VOID:
            return
        classes = (found.get("class") or "").split()
        self._open.append((tag, tag in _VERBATIM or "math" in classes or "headerlink" in classes))
        if tag == "a":
            self.links.append("")

    def handle_endtag(self, tag: str) -> None:
        while any(name == tag for name, _ in self._open) and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        within = [name for name, _ in self._open]
        self.text += data
        if "h1" in within and "a" not in within:
            self.title += data
        if "a" in within:
            self.links[-1] += data
        if "article" in within:
            self.prose += "\0" if any(verbatim for _, verbatim in self._open) else data

    def faults(self) -> list[str]:
        """Return markup that was rendered as text, and texts that look like file names."""
        found = [
            *_matches("a backslash", r"\\[^\s]?\w*", self.prose),
            *_matches("a table that is none", r"^\s*\|.*|.*\| ?-{2,}.*", self.prose),
            *_matches("a formula that is none", r".*\$.*\$.*", self.prose),
        ]
        files = [link for link in self.links if re.search(r"\.(md|html)$", link)]
        found += [f"loaded from elsewhere: {each}" for each in self.loaded if re.match(r"(https?:)?//", each)]
        return found + [f"a link that reads as a file: {link}" for link in files]


def _matches(fault: str, pattern: str, text: str) -> list[str]:
    return [f"{fault}: {match[0].strip()}" for match in re.finditer(pattern, text, re.M)]
