"""A protocol of somebody else: a lock, whose writes carry tokens; its report has one check, one measure, one table."""

from typing import ClassVar

import msgspec

from statemachines.kernel import Call, Event, Fsm, Ignore, Protocol, Row, Status, TraceColumns
from statemachines_reports.protocol import Amount, Check, Latency, Measure, ReportProtocol, Tally, verdict


class Take(Call, frozen=True):
    columns: ClassVar = TraceColumns(key="lock", term="token")
    lock: str
    token: int


class Leave(Call, frozen=True):
    pass


class Written(Event, frozen=True):
    columns: ClassVar = TraceColumns(key="lock", term="token")
    lock: str
    token: int


class LockStatus(Status):
    FREE = "free"
    HELD = "held"


FREE, HELD = LockStatus


class LockRecord(msgspec.Struct, frozen=True):
    id: str
    status: LockStatus = FREE


LOCK = Fsm(
    "lock",
    protocol="mine",
    record=LockRecord,
    states=LockStatus,
    initial=FREE,
    rows=(
        Row(Take, FREE, HELD, None, None, "MY-1"),
        Row(Leave, HELD, FREE, None, None, "MY-2"),
        Ignore((Take,), HELD, "MY-3"),
        Ignore((Leave,), FREE, "MY-3"),
    ),
)


def judge_fencing(segment):
    columns = segment.columns
    writes = columns.rows_of("tell", event=("written",))
    older = writes[1:][columns["term"][writes][1:] < columns["term"][writes][:-1]]
    return verdict(columns, len(writes), older, lambda row: f"token {columns['term'][row]} after a newer one")


class Hold(msgspec.Struct, frozen=True):
    run: int
    lock: str
    first: str


def find(segment):
    columns = segment.columns
    for row in columns.rows_of("tell", event=("written",)):
        run = int(columns["run"][row])
        yield Tally(run, "delivered", 1)
        yield Latency("grant", run, 5_000_000)
        yield Hold(run, columns.text("key", row), str(segment.parameters(run)["fenced"]))


REPORTS = ReportProtocol(
    checks=(
        Check("fencing", "no write with an older token", judge_fencing, promised=lambda facts: facts["fenced"]),
        Check("exclusivity", "called like another's", judge_fencing, promised=lambda facts: False),
    ),
    measures=(Measure("grant", "Wait", "from asking to holding"),),
    amounts=(Amount("delivered", card="writes"),),
    find=find,
    results=(Hold,),
    tables={"holds": 'SELECT lock, "first" AS fenced, count(*) AS held FROM hold GROUP BY lock, "first"'},
)

PROTOCOL = Protocol(
    name="mine",
    prefix="MY",
    machines={"lock": "lock_protocol:LOCK"},
    areas={"reports": "lock_protocol:REPORTS"},
)
