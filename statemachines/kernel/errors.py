"""The errors of the package: the reader always knows whose fault it was.

`LocalProtocolError`: the host asked for something illegal.  `RemoteProtocolError`: the peer did.
`InvariantViolated`: we did.  `ConfigurationError`: a value that somebody wrote down breaks a rule.
`DeclarationError`: a table is not a machine.  Anything else that a step raises is a bug of ours.
"""

from __future__ import annotations


class GaplessError(Exception):
    """Base of every error that this package raises on purpose."""


class ProtocolError(GaplessError):
    """An event that the table refuses: `machine`, `state`, `event` and the `clause` that says so."""

    def __init__(self, machine: str, state: str, event: str, clause: str, why: str) -> None:
        self.machine = machine
        self.state = state
        self.event = event
        self.clause = clause
        super().__init__(f"{machine} in state {state} got {event}: {why}" + (f" [{clause}]" if clause else ""))


class LocalProtocolError(ProtocolError):
    """The host application (or a driver) fed an event that is illegal in this state."""


class RemoteProtocolError(ProtocolError):
    """A peer sent a message that is illegal in this state, or that this machine does not take at all."""


class InvariantViolated(GaplessError):
    """A promise of ours does not hold: `machine`, `invariant`, the `record`, the `event` and the `row` taken."""

    def __init__(
        self, machine: str, invariant: str, record: object, event: object = None, row: int = -1, detail: str = ""
    ) -> None:
        self.machine = machine
        self.invariant = invariant
        self.record = record
        self.event = event
        self.row = row
        text = f"{machine}: invariant {invariant} does not hold"
        if event is not None:
            text += f" after row {row} on {type(event).__name__}"
        super().__init__(text + (f": {detail}" if detail else ""))


class Superseded(GaplessError):
    """Another process has taken this node's name: it is the newer life of it, and this one ends."""


class ConfigurationError(GaplessError):
    """A configuration value, or a relation between values, breaks a rule: names key, value and rule."""

    def __init__(self, key: str, value: object, rule: str) -> None:
        self.key = key
        self.value = value
        self.rule = rule
        super().__init__(f"{key} = {value!r}: {rule}")

    def __reduce__(self) -> tuple[type[ConfigurationError], tuple[str, object, str]]:
        """So that it comes back whole from another process."""
        return type(self), (self.key, self.value, self.rule)


class DeclarationError(GaplessError):
    """A declaration is not a machine: an undecided cell, an unknown state, a clash of names."""


class DeclarationWarning(UserWarning):
    """A declaration is a machine, and perhaps not the one that is meant."""
