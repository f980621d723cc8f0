"""A machine with a hand around it: events in, effects out, each step compared with that of `transitions`."""

from __future__ import annotations

from statemachines.kernel import Ask, CancelTimer, Map, Send, SetTimer, Tell
from statemachines.persistent_sessions.in_flight_record import SENT, InFlightRecord
from statemachines.persistent_sessions.message import Live, LiveMarker, Queued
from statemachines.persistent_sessions.request import EpochRows, Polled, SessionState
from statemachines.persistent_sessions.takeover_message import TakeoverEnded
from statemachines.persistent_sessions.times import Times
from statemachines.persistent_sessions.writer_flow_record import WriterFlowRecord

TIMES = Times(resume_buffer=3, receive_maximum=2)


class Hand:
    """One machine; `feed` returns what it sends, asks and tells, by the names of their types; `delegated` are the steps
    of its children."""

    def __init__(self, fsm, record, *events):
        self.fsm = fsm
        self.record = record
        self.effects = ()
        self.delegated = []
        for event in events:
            self.feed(event)

    def feed(self, event, now_ns=0):
        step = self.fsm.step(self.record, event, now_ns)
        assert step == self.fsm.reference_step(self.record, event, now_ns)
        self.record, self.effects = step.record, step.effects
        self.delegated += step.children
        if self.record.status not in self.fsm.final:
            assert all(one.holds(self.record) for one in self.fsm.invariants)
        return [carried(one) for one in step.effects if not isinstance(one, SetTimer | CancelTimer)]

    @property
    def status(self):
        return self.record.status.value


def carried(effect):
    match effect:
        case Send(_, message):
            return message
        case Ask(_, request):
            return request
        case Tell(event):
            return event
    raise TypeError(effect)


def queued(number, qos=1, message=None, filter="t"):
    return Queued(number, f"m{number}" if message is None else message, filter, qos)


def mortal(number, until_ns, qos=1):
    """A message that expires."""
    return Queued(number, f"m{number}", "t", qos, until_ns)


def rows(*numbers):
    return tuple(queued(number) for number in numbers)


def flying(*numbers, qos=1, status=SENT):
    """A state with these messages in flight, each under its number."""
    packets = {n: InFlightRecord(n, "c", queued(n, qos), n - 1, status) for n in numbers}
    return SessionState(packets=Map(packets), places=len(numbers))


def found(*numbers, writer="w", epoch=1, markers=()):
    """Rows of a writer, as an owner hands them over."""
    return EpochRows(writer, epoch, rows(*numbers), markers)


def polled(*numbers, **given):
    """Rows of the writer "w", as they are read."""
    return Polled("w", (found(*numbers, **given),))


def ended(*what):
    """What an owner hands over to the one that asked with the token 7."""
    return TakeoverEnded("c", 7, what)


def live(number, epoch=1, writer="w"):
    return Live("s", writer, epoch, queued(number))


def marker(k, n=1, epoch=1, token=7, writer="w"):
    return LiveMarker("s", writer, epoch, k, token, n)


def flow(**given):
    return WriterFlowRecord("s", "w", "owner~1", 7, TIMES, **given)


def names(effects):
    return [type(one).__name__ for one in effects]
