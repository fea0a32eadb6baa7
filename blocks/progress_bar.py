"""Progress of long steps: a bar on a terminal, otherwise a line every minute, which also goes to the log of a run."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from blocks import stderr
from blocks.errors import OocError

INTERVAL = 60.0  # seconds between two lines


Bar = Callable[[str, int | None, str], Any]  # (what, total, unit) -> a progress bar with update() and close()


class ProgressBar:
    """Progress of one step, with the methods of tqdm that are used.

    what: name of the step, such as "reading".
    total: None if unknown.
    unit: unit of the counts, "B" for bytes.
    initial: amount already done.
    quiet: print nothing.
    leave: keep the bar on the terminal.
    log: function that also gets the lines; its disk errors are ignored.
    """

    last = -math.inf  # time of the last line of any bar: the interval spans steps
    is_hidden = False  # True on all ranks of a ring but the first: nothing is printed

    def __init__(
        self,
        what: str,
        total: int | None,
        unit: str,
        *,
        initial: int = 0,
        quiet: bool = False,
        leave: bool = False,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self._what, self._total, self._unit, self._log = what, total, unit, log
        self._initial, self._done, self._values = initial, initial, ""
        self._began = self._updated = time.monotonic()
        if self._began - ProgressBar.last > INTERVAL:  # no line in the first minute of a command
            ProgressBar.last = self._began
        prints = not quiet and not self.is_hidden
        self._bar = self._drawn(leave) if prints and sys.stderr.isatty() and not stderr.is_json() else None
        self._prints = prints and self._bar is None
        self._over, self._thread = threading.Event(), threading.Thread(target=self._tell, daemon=True)
        if self._prints or log:
            self._thread.start()

    def _drawn(self, leave: bool) -> Any:
        from tqdm import tqdm

        given = {"total": self._total, "initial": self._initial, "desc": self._what, "unit": self._unit, "leave": leave}
        return tqdm(**given, unit_scale=self._unit == "B", smoothing=0.1, file=sys.stderr)

    def update(self, more: int = 1) -> None:
        """Add to the amount done.

        more: amount since the last call.
        """
        if more:
            self._done, self._updated = self._done + more, time.monotonic()
        if self._bar is not None:
            self._bar.update(more)

    def set_postfix_str(self, values: str) -> None:
        """Show a text after the bar from the next update on."""
        self._values = values
        if self._bar is not None:
            self._bar.set_postfix_str(values, refresh=False)

    def close(self) -> None:
        """End the step."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._bar is not None:
            self._bar.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _tell(self) -> None:
        """Print a line every minute until the step ends."""
        while not self._over.wait(max(ProgressBar.last + INTERVAL - time.monotonic(), 0.0)):
            ProgressBar.last = time.monotonic()
            facts = self._facts()
            line = self._line(facts)
            with suppress(OSError):  # standard error no longer has a reader
                if self._prints:
                    stderr.print_note(line, **facts)
            with suppress(OSError, OocError):
                if self._log:
                    self._log(line)

    def _facts(self) -> dict[str, Any]:
        """Return rate (per second since the start) and left_s (remaining seconds at this rate), each None if
        unknown."""
        now, done, updated = time.monotonic(), self._done, self._updated
        seconds = updated - self._began
        rate = (done - self._initial) / seconds if seconds > 0 else None
        left = None
        if rate and self._total is not None:
            left = round(max((self._total - done) / rate - (now - updated), 0.0), 1)
        counts = {"step": self._what, "done": done, "total": self._total, "unit": self._unit, "rate": rate}
        return {**counts, "elapsed_s": round(now - self._began, 1), "left_s": left}

    def _line(self, facts: dict[str, Any]) -> str:
        done, total, rate, left = (facts[name] for name in ("done", "total", "rate", "left_s"))
        unit, units, scale = self._unit, f"{self._unit}{'es' if self._unit.endswith('s') else 's'}", 1.0
        if unit == "B":
            unit, units, scale = "MB", "MB", 1e6
        of = f" of {total / scale:,.0f}" if total else ""
        units = unit if (total or done) == 1 else units
        share = f" ({done / total:.0%})" if total else ""
        parts = [f"{self._what}: {done / scale:,.0f}{of} {units}{share}"]
        if rate:
            per = rate / scale
            parts.append(f"{per:,.1f} {units}/s" if per >= 1 else f"{1 / per:,.1f} s/{unit}")
        parts.append(f"{_duration(facts['elapsed_s'])} so far")
        parts += [f"{_duration(left)} left"] if left is not None else []
        return ", ".join(parts) + (f"; {self._values}" if self._values else "")


def no_bar(*_: object) -> Any:
    """Return a progress bar that displays nothing."""
    return ProgressBar("", None, "", quiet=True)


def _duration(seconds: float) -> str:
    """Return seconds in the form 1:02:03."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
