"""Headless browser for tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 200_000  # milliseconds until something that must happen is taken not to
COMMANDS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

# Of every visible text whether it can be read: its size in pixels and its contrast with what is behind it, as the Web
# Content Accessibility Guidelines 2.2 define it (relative luminance, 1.4.3); those of more than 4.5 and 9 pixels pass.
UNREADABLE = """() => {
  const numbers = colour => { const c = colour.match(/[\\d.]+/g).map(Number); return c.length < 4 ? [...c, 1] : c; };
  const luminance = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (colour[3] === 1) return colour;
    }
    return [255, 255, 255, 1];
  };
  const wrong = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, box = element.getBoundingClientRect();
    const hidden = !box.width || !box.height || element.closest("script, style");
    if (hidden || !walker.currentNode.textContent.trim()) continue;
    const style = getComputedStyle(element), inChart = element.closest("svg");
    const [a, b] = [luminance(numbers(inChart ? style.fill : style.color)), luminance(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5 || parseFloat(style.fontSize) < 9) {
      wrong.push([walker.currentNode.textContent, contrast, style.fontSize]);
    }
  }
  return wrong;
}"""


@contextmanager
def chromium() -> Iterator[Any]:
    """Yield a running Playwright browser; skips the test if the machine has none."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        path = own if Path(own).exists() else next(filter(None, map(shutil.which, COMMANDS)), None)
        if path is None:
            pytest.skip("NOT TESTED: there is no Chromium on this machine (with Debian: apt-get install chromium)")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"], timeout=PATIENCE)
        yield browser
        browser.close()


def opened(browser: Any, page: Path, width: int = 1280, scheme: str = "light") -> tuple[Any, list[str]]:
    """Yield a rendered page in its own window, and a list that collects errors of its console, scripts and network."""
    shown, problems = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme), []
    shown.set_default_timeout(PATIENCE)
    shown.on("console", lambda message: problems.append(f"{message.type}: {message.text}"))
    shown.on("pageerror", lambda error: problems.append(str(error)))
    shown.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}") or dialog.dismiss())
    shown.on(
        "request", lambda request: None if request.url.startswith(("file:", "data:")) else problems.append(request.url)
    )
    shown.goto(page.as_uri())
    sections = "[...document.querySelectorAll('main > section:not(#made)')]"
    shown.wait_for_function(f"{sections}.every(section => 'drawn' in section.dataset)")
    return shown, problems
