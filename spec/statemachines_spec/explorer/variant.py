"""Variant: another machine from the same declaration, some of its rows substituted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from warnings import catch_warnings, simplefilter

from statemachines.kernel import DeclarationWarning, Fsm, Row


def substitute_rows(fsm: Fsm[Any], change: Callable[[Row], Row]) -> Fsm[Any]:
    """The machine with `change(row)` in place of each row; everything else is as declared."""
    with catch_warnings():
        simplefilter("ignore", DeclarationWarning)  # a mistake is made on purpose
        return Fsm(
            fsm.name,
            protocol=fsm.protocol,
            record=fsm.record_type,
            states=type(fsm.initial),
            initial=fsm.initial,
            rows=tuple(change(row) if isinstance(row, Row) else row for row in fsm.declared),
            final=fsm.final,
            timers=fsm.timers,
            children=fsm.children,
            key=fsm.key,
            invariants=fsm.invariants,
        )
