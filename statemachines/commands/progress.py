"""Progress of long work: a bar on stderr, and only where somebody is looking."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int, int], None]
"""(done so far, of how many)"""


@contextmanager
def bar(what: str) -> Iterator[Advance]:
    """`with bar("seeds") as advance: advance(3, 200)`."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def say_progress(text: str) -> None:
    """A line on stderr, where somebody is looking."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)
