"""Fixed draws: what Hypothesis draws under a seed, whatever else the process has loaded.

Hypothesis (since 6.131) now and then draws a constant that it has read in the source of a local module that is loaded.
So `derandomize` and `seed` alone do not give the same run everywhere: in a suite the draws change with the tests that
ran before, and with the worker.  A search that must find something, or a count that must be reached, runs in here.

There is no setting for it; what is replaced is named here and nowhere else, and a test sees that it is the right thing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

NO_CONSTANTS = Constants()


@contextmanager
def fix_draws() -> Iterator[None]:
    """In the block, draws rest on the strategies and the seed alone; blocks may be nested."""
    with patch.object(providers, "_get_local_constants", lambda: NO_CONSTANTS):
        _forget()  # what may be drawn is remembered by the bounds of a draw, and not by where constants came from
        try:
            yield
        finally:
            _forget()


def _forget() -> None:
    providers.CONSTANTS_CACHE.cache.clear()
