"""InputChoice: which of the messages that peers may send is sent next."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, Final

from statemachines.kernel import Fsm, ProtocolError
from statemachines.testing.conformance.wire_judge import WireCoverage

ENDING: Final = 0.04
"""So much of what the kit proposes ends the instance."""

FRESH: Final = 0.4
"""So much of it takes a row that was not taken."""


class InputChoice:
    """Chooses messages, steered to rows that were not taken."""

    def __init__(self, fsm: Fsm[Any], coverage: WireCoverage) -> None:
        self._fsm = fsm
        self._coverage = coverage

    def choose(self, record: Any, messages: Iterable[Any], chance: Random) -> Any | None:
        """One of the messages for an instance in this state; None: the table takes none of them."""
        fsm, taken = self._fsm, self._coverage.cells
        kinds: dict[tuple[bool, bool], list[Any]] = {}
        for message in messages:
            try:
                step = fsm.step(record, message, 0)
            except ProtocolError:
                continue
            is_fresh = (fsm.full_name, step.row, str(record.status.value)) not in taken
            kinds.setdefault((step.record.status in fsm.final, is_fresh), []).append(message)
        ends = chance.random() < ENDING
        order = [(ends, chance.random() < FRESH), (ends, False), (ends, True), (not ends, False), (not ends, True)]
        found = next((kinds[kind] for kind in order if kind in kinds), None)
        return None if found is None else chance.choice(found)
