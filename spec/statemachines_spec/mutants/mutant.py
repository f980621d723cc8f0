"""Mutant: one small mistake in a shipped machine, which is put in for the time of a `with` block.

    with plant(mutant):
        ...                                     # tables, guards and actions are as the mutant has them

Mutants are enumerated from the declaration (`row_mutants`) and from the text of what it calls (`code_mutants`), always
in the same order and under the same names, so that a single one can be judged again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec

Apply = Callable[[ExitStack], None]

Site = tuple[str, str, int]
"""What is executed: ("row" | "asked" | "armed", machine, number of the row or timer), or ("line", file, line).  A row
is asked when its guard is reckoned, or would be if it had one."""

ROW, GUARD, TIMER, CODE = GROUPS = ("row", "guard", "timer", "code")
"""What is changed: where rows lead and in which order they stand; when; the timers; what is called."""


class Mutant(msgspec.Struct, frozen=True):
    """`name`, of one `group` and `kind`; `what` is changed, in words; `clause` of the row ("" of code); `sites`: where
    none of them is executed, nothing can differ; `refusal()`: what the checks of a declaration say of it ("":
    nothing)."""

    name: str
    group: str
    kind: str
    what: str
    clause: str
    sites: tuple[Site, ...]
    apply: Apply
    refusal: Callable[[], str] = str

    def __repr__(self) -> str:
        return f"Mutant({self.name!r})"


class Unmade(Exception):
    """The mutant cannot be made: what is left of the function does not fit in its place."""


@contextmanager
def plant(mutant: Mutant) -> Iterator[None]:
    """The mistake, for the time of the block.  Raises `Unmade` where it cannot be put in."""
    with ExitStack() as stack:
        mutant.apply(stack)
        yield


def field_types(of: type[Any]) -> dict[str, Any]:
    """The fields of a struct with their types; nothing where they cannot be read."""
    try:
        return {one.name: one.type for one in msgspec.structs.fields(of)}
    except (TypeError, NameError):
        return {}
