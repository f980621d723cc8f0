"""Rows of a machine that are changed for a bug."""

from __future__ import annotations

from typing import Any

from statemachines.kernel import Event, Fsm, Row
from statemachines.kernel.row import AnyRow
from statemachines_spec.bug import Apply, redeclare


def on(fsm: Fsm[Any], event: type[Event], source: Any, **what: Any) -> Apply:
    """The rows of this event in `source` have another action `do`, guard `when` or destination `to`."""

    def changed(one: AnyRow) -> list[AnyRow]:
        if not isinstance(one, Row) or one.on is not event or source not in fsm._sources(one.source):
            return [one]
        do, when, to = what.get("do", one.do), what.get("when", one.when), what.get("to", one.to)
        return [Row(one.on, one.source, to, do, when, one.clause)]

    return lambda stack: redeclare(stack, fsm, changed)
