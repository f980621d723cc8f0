"""Events and values of the machines of a session."""

from statemachines.kernel import Map
from statemachines.persistent_sessions.in_flight_record import SENT, InFlightRecord
from statemachines.persistent_sessions.message import Live, LiveMarker, Queued
from statemachines.persistent_sessions.request import EpochRows, Polled, SessionState
from statemachines.persistent_sessions.takeover_record import TakeoverEnded
from statemachines.persistent_sessions.times import Times
from statemachines.persistent_sessions.writer_flow import WriterFlowRecord

TIMES = Times(resume_buffer=3, receive_maximum=2)


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
