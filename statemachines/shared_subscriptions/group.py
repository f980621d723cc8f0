"""Group: declaring a group, or destroying it, as one node does it over the group store (source: "General Idea").

    idle -> reading -> declaring -> done
    idle -> reading -> marking -> sweeping -> settling -> clearing -> done

A declaration is one conditional write, so that of two nodes one declares and the other finds it done.  Destroying
marks the properties first: from then on nobody leads the group, joins it, or commits for it; then the progress is
removed in pages; and when the last leader has given its claim up and every lease has surely ended, by the times that
stand in the mark, the mark goes.  So whoever finds a mark, and whoever finds nothing, knows enough: the first completes
the work, since the node that began it may be gone, and after the second nothing is delivered any more.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Ask,
    Call,
    ConfigurationError,
    Effects,
    Event,
    Fsm,
    Ignore,
    Row,
    SetTimer,
    Status,
    Stop,
    Tell,
    Timer,
    TimerFired,
)
from statemachines.shared_subscriptions.claim import PAGE, agrees, is_declared
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group_store import (
    SERVICE,
    Claim,
    Commit,
    Committed,
    Order,
    Properties,
    Read,
    ReadDone,
    Refused,
    Scan,
    Scanned,
    StoredRecord,
    StoreFailed,
    Value,
    record_key,
)
from statemachines.shared_subscriptions.names import OF_STREAMS
from statemachines.shared_subscriptions.stream_store import matches


class Declare(Call, frozen=True, gc=False):
    """Declare the group, if it is not: it begins at `start_ns` of store time (0: everything stored; -1: now).  `order`:
    of its messages ("": as it was declared, or strict)."""

    start_ns: int = -1
    order: Order | Literal[""] = ""


class Destroy(Call, frozen=True, gc=False):
    """Destroy the group: its members are invalidated, its state is removed."""


class GroupDeclared(Event, frozen=True, gc=False):
    """To the host: the group is declared and begins at `start_ns`; `found`: it was already."""

    group: str
    filter: str
    start_ns: int
    found: bool
    order: Order = "strict"


class GroupDestroyed(Event, frozen=True, gc=False):
    """To the host: there is no such group (any more), and nothing of it is delivered; `found`: there was one."""

    group: str
    filter: str
    found: bool


class DeclarationRefused(Event, frozen=True, gc=False):
    """To the host: the group lives by other ping or claim times than ours, or by another order."""

    group: str
    filter: str
    properties: Properties


class AgainTimer(TimerFired, frozen=True, gc=False):
    """Try again what a store did not answer, or look whether the last lease has ended."""


class GroupStatus(Status):
    """What is being done."""

    IDLE = "idle"
    READING = "reading"
    DECLARING = "declaring"
    MARKING = "marking"
    SWEEPING = "sweeping"
    CLEARING = "clearing"
    SETTLING = "settling"
    DONE = "done"


IDLE, READING, DECLARING, MARKING, SWEEPING, CLEARING, SETTLING, DONE = GroupStatus
BUSY = (READING, DECLARING, MARKING, SWEEPING, CLEARING, SETTLING)
WRITING = (DECLARING, MARKING, SWEEPING, CLEARING)


class GroupRecord(msgspec.Struct, frozen=True, gc=False):
    """One declaration or destruction.  `destroy`: which; `start_ns`, `order`: as asked for, `begins_ns`: as
    declared; `n`: of the last request; `mark`: of the group that is destroyed, with its times; `found`: the properties
    that were to be marked, as they were read (None: there was no group to destroy); `claim`: as it was found last while
    it settles, and first at `claim_at_ns`; `ripe`: when the read under way was sent, it had been watched for long
    enough."""

    id: str
    group: str
    filter: str
    configuration: Configuration
    status: GroupStatus = IDLE
    destroy: bool = False
    start_ns: int = -1
    order: Order | Literal[""] = ""
    begins_ns: int = 0
    n: int = 0
    mark: StoredRecord | None = None
    found: StoredRecord | None = None
    claim: StoredRecord | None = None
    claim_at_ns: int = 0
    ripe: bool = False

    def key(self, name: str) -> str:
        """The key of one of the group's records."""
        return record_key(self.group, self.filter, name)


Outcome = tuple[GroupRecord, Effects]
StoreAnswer = ReadDone | Scanned | Committed | Refused | StoreFailed


# -- guards ---------------------------------------------------------------------------------------------------------


def is_awaited(record: GroupRecord, event: StoreAnswer) -> bool:
    return event.n == record.n


def is_declared_as_ours(record: GroupRecord, event: ReadDone) -> bool:
    stored = event.records[0]
    if not is_to_declare(record, event) or not is_declared(stored) or not agrees(record.configuration, stored):
        return False
    return record.order in ("", properties_of(event).order)


def is_declared_otherwise(record: GroupRecord, event: ReadDone) -> bool:
    return is_to_declare(record, event) and is_declared(event.records[0])


def is_absent(record: GroupRecord, event: ReadDone) -> bool:
    return is_to_declare(record, event) and event.records[0] is None


def is_to_declare(record: GroupRecord, event: ReadDone) -> bool:
    return is_awaited(record, event) and not record.destroy


def is_to_destroy(record: GroupRecord, event: ReadDone) -> bool:
    """Declared, and not since the group was found that it is about."""
    stored = event.records[0]
    is_meant = record.mark is None or stored == record.found
    return is_awaited(record, event) and record.destroy and is_declared(stored) and is_meant


def is_marked(record: GroupRecord, event: ReadDone) -> bool:
    return is_awaited(record, event) and event.records[0] is not None and not is_declared(event.records[0])


def is_over(record: GroupRecord, event: ReadDone) -> bool:
    """Destroyed by somebody else, whether or not it was declared anew since, or never declared: asked last."""
    return is_awaited(record, event) and record.destroy


def is_empty(record: GroupRecord, event: Scanned) -> bool:
    return is_awaited(record, event) and not event.records


def is_destroyer_s(record: GroupRecord, event: Committed | Refused) -> bool:
    return is_awaited(record, event) and record.destroy


def is_gone(record: GroupRecord, event: ReadDone) -> bool:
    """Somebody else has removed the mark, and so had waited for what we wait for."""
    return is_awaited(record, event) and event.records[0] != record.mark


def is_gone_for_destroyer(record: GroupRecord, event: ReadDone) -> bool:
    return is_gone(record, event) and record.destroy


def is_settled(record: GroupRecord, event: ReadDone) -> bool:
    """Nobody can deliver under the destroyed group any more."""
    if not is_awaited(record, event):
        return False
    stored = event.records[1]
    if stored is None or not isinstance(stored.value, Claim):
        return True
    return settling_ns(record, stored.value) == 0 or (record.ripe and stored == record.claim)


def settling_ns(record: GroupRecord, claim: Claim) -> int:
    """How long the claim must be watched until nobody delivers under it, by the group's own times."""
    times = times_of(record)
    held_ns = times.claim_ttl_ms * MS if claim.leader else 0
    return held_ns + (0 if claim.clean else times.lease_by_other_clock_ns())


def times_of(record: GroupRecord) -> Configuration:
    """Those of the group that is destroyed: they say when its claim and its leases have ended."""
    assert record.mark is not None
    mark = record.mark.value
    assert isinstance(mark, Properties)
    return replace(
        record.configuration,
        ping_interval_ms=mark.ping_interval_ms,
        ping_timeout_ms=mark.ping_timeout_ms,
        claim_ttl_ms=mark.claim_ttl_ms,
    )


# -- actions --------------------------------------------------------------------------------------------------------


def begin_declare(record: GroupRecord, event: Declare, now_ns: int) -> Outcome:
    return read(replace(record, start_ns=event.start_ns, order=event.order), event, now_ns)


def begin_destroy(record: GroupRecord, event: Destroy, now_ns: int) -> Outcome:
    return read(replace(record, destroy=True), event, now_ns)


def read(record: GroupRecord, event: Event, now_ns: int) -> Outcome:
    record = replace(record, n=record.n + 1, ripe=has_settled(record, now_ns))
    return record, (Ask(SERVICE, Read(record.n, (record.key("properties"), record.key("claim")))),)


def has_settled(record: GroupRecord, now_ns: int) -> bool:
    """The claim as it was found has been watched for long enough."""
    if record.claim is None or not isinstance(record.claim.value, Claim):
        return False
    return now_ns - record.claim_at_ns >= settling_ns(record, record.claim.value)


def settle_later(record: GroupRecord, event: ReadDone, now_ns: int) -> Outcome:
    """Somebody may still deliver: the claim is watched, by our own clock, from when it was found so."""
    if event.records[1] != record.claim:
        record = replace(record, claim=event.records[1], claim_at_ns=now_ns)
    return try_later(record, event, now_ns)


def try_later(record: GroupRecord, event: Event, now_ns: int) -> Outcome:
    return record, (SetTimer("again", now_ns + record.configuration.commit_interval_ms * MS),)


def declare(record: GroupRecord, event: ReadDone, now_ns: int) -> Outcome:
    ours = record.configuration
    start_ns = event.time_ns if record.start_ns < 0 else record.start_ns
    times = (ours.ping_interval_ms, ours.ping_timeout_ms, ours.claim_ttl_ms)
    properties = Properties(start_ns, *times, order=record.order or "strict")
    record = replace(record, begins_ns=start_ns)
    return commit(record, None, ((record.key("properties"), properties),))


def mark(record: GroupRecord, event: ReadDone, now_ns: int) -> Outcome:
    mark = replace(properties_of(event), destroyed=True)
    record = replace(record, mark=StoredRecord(mark, 0), found=event.records[0])
    return commit(record, event.records[0], ((record.key("properties"), mark),))


def commit(record: GroupRecord, expect: StoredRecord | None, put: tuple[tuple[str, Value | None], ...]) -> Outcome:
    """One batch, if the properties are still as expected."""
    record = replace(record, n=record.n + 1)
    return record, (Ask(SERVICE, Commit(record.n, ((record.key("properties"), expect),), put)),)


def sweep_marked(record: GroupRecord, event: Committed, now_ns: int) -> Outcome:
    """Our mark is there."""
    assert record.mark is not None
    return scan(replace(record, mark=replace(record.mark, stamp=event.stamp)), event, now_ns)


def sweep_found(record: GroupRecord, event: ReadDone, now_ns: int) -> Outcome:
    """Somebody's mark is there, or ours after all."""
    return scan(replace(record, mark=event.records[0]), event, now_ns)


def scan(record: GroupRecord, event: Event, now_ns: int) -> Outcome:
    record = replace(record, n=record.n + 1)
    return record, (Ask(SERVICE, Scan(record.n, record.key(OF_STREAMS), "", PAGE)),)


def remove_page(record: GroupRecord, event: Scanned, now_ns: int) -> Outcome:
    return commit(record, record.mark, tuple((key, None) for key, _ in event.records))


def clear(record: GroupRecord, event: ReadDone, now_ns: int) -> Outcome:
    return commit(record, record.mark, ((record.key("properties"), None),))


def tell_declared(record: GroupRecord, event: Committed, now_ns: int) -> Outcome:
    told = GroupDeclared(record.group, record.filter, record.begins_ns, False, record.order or "strict")
    return record, (Tell(told), Stop())


def tell_found(record: GroupRecord, event: ReadDone, now_ns: int) -> Outcome:
    found = properties_of(event)
    return record, (Tell(GroupDeclared(record.group, record.filter, found.start_ns, True, found.order)), Stop())


def tell_refused(record: GroupRecord, event: ReadDone, now_ns: int) -> Outcome:
    return record, (Tell(DeclarationRefused(record.group, record.filter, properties_of(event))), Stop())


def properties_of(event: ReadDone) -> Properties:
    """The properties as they were read."""
    stored = event.records[0]
    assert stored is not None
    assert isinstance(stored.value, Properties)
    return stored.value


def tell_destroyed(record: GroupRecord, event: ReadDone | Committed | Refused, now_ns: int) -> Outcome:
    return record, (Tell(GroupDestroyed(record.group, record.filter, record.found is not None)), Stop())


def start_of(start: str | int) -> int:
    """`start_ns` of a declaration, for "now", "beginning", or store time in nanoseconds."""
    if isinstance(start, int) and start >= 0:
        return start
    if start not in ("now", "beginning"):
        raise ConfigurationError("start", start, "must be now or beginning, or nanoseconds of store time")
    return 0 if start == "beginning" else -1


def order_of(order: str | None) -> Order | Literal[""]:
    """`order` of a declaration; raises `ConfigurationError` for any other word."""
    match order:
        case None:
            return ""
        case "strict" | "relaxed":
            return order
    raise ConfigurationError("order", order, 'must be "strict" or "relaxed"; leave it out for what was declared')


def check_dead_letters(ours: Configuration, topic_filter: str) -> None:
    """Raises `ConfigurationError` where the group would get its own dead letters."""
    topic = ours.dead_letter_topic
    if topic and matches(topic_filter, topic):
        rule = (
            f"is matched by the group's own filter {topic_filter}; choose another topic, say one that begins with '$'"
        )
        raise ConfigurationError("dead_letter_topic", topic, rule)


def make_difference_error(ours: Configuration, theirs: Properties) -> ConfigurationError:
    """What an application is told whose times are not those of the group."""
    names = ("ping_interval_ms", "ping_timeout_ms", "claim_ttl_ms")
    different = [name for name in names if getattr(ours, name) != getattr(theirs, name)]
    if not different:
        rule = "the group was declared with the other one: leave it out, or destroy the group and declare it anew"
        return ConfigurationError("order", "strict" if theirs.order == "relaxed" else "relaxed", rule)
    values = ", ".join(f"{name} = {getattr(theirs, name)}" for name in different)
    return ConfigurationError(different[0], getattr(ours, different[0]), f"the group lives by {values}: use the same")


# fmt: off
ROWS = (
    #   on          from       to         do              when                    clause
    Row(Declare,    IDLE,      READING,   begin_declare,  None,                   "SS-200"),
    Row(Destroy,    IDLE,      READING,   begin_destroy,  None,                   "SS-203"),
    Row(ReadDone,   READING,   DONE,      tell_found,     is_declared_as_ours,    "SS-201"),
    Row(ReadDone,   READING,   DONE,      tell_refused,   is_declared_otherwise,  "SS-202"),
    Row(ReadDone,   READING,   DECLARING, declare,        is_absent,              "SS-200"),
    Row(ReadDone,   READING,   MARKING,   mark,           is_to_destroy,          "SS-203"),
    Row(ReadDone,   READING,   SWEEPING,  sweep_found,    is_marked,              "SS-204"),
    Row(ReadDone,   READING,   DONE,      tell_destroyed, is_over,                "SS-263"),
    Row(Committed,  DECLARING, DONE,      tell_declared,  is_awaited,             "SS-200"),
    Row(Committed,  MARKING,   SWEEPING,  sweep_marked,   is_awaited,             "SS-203"),
    Row(Scanned,    SWEEPING,  SETTLING,  read,           is_empty,               "SS-206"),
    Row(Scanned,    SWEEPING,  STAY,      remove_page,    is_awaited,             "SS-205"),
    Row(Committed,  SWEEPING,  STAY,      scan,           is_awaited,             "SS-205"),
    Row(ReadDone,   SETTLING,  DONE,      tell_destroyed, is_gone_for_destroyer,  "SS-206"),
    Row(ReadDone,   SETTLING,  READING,   read,           is_gone,                "SS-204"),
    Row(ReadDone,   SETTLING,  CLEARING,  clear,          is_settled,             "SS-205"),
    Row(ReadDone,   SETTLING,  STAY,      settle_later,   is_awaited,             "SS-206"),
    Row(Committed,  CLEARING,  DONE,      tell_destroyed, is_destroyer_s,         "SS-206"),
    Row(Refused,    CLEARING,  DONE,      tell_destroyed, is_destroyer_s,         "SS-206"),
    Row(Committed,  CLEARING,  READING,   read,           is_awaited,             "SS-204"),
    Row(AgainTimer, SETTLING,  STAY,      read,           None,                   "SS-206"),
    Row(AgainTimer, READING,   STAY,      read,           None,                   "SS-207"),
    Row(Refused,    WRITING,   READING,   read,           is_awaited,             "SS-207"),
    Row(StoreFailed, SETTLING, STAY,      try_later,      is_awaited,             "SS-207"),
    Row(StoreFailed, BUSY,     READING,   try_later,      is_awaited,             "SS-207"),
    Ignore((Declare, Destroy),                            BUSY,                   "SS-208"),
    Ignore((ReadDone, Scanned, Committed, Refused, StoreFailed, AgainTimer), (IDLE, *BUSY), "SS-208"),
)
# fmt: on

GROUP = Fsm(
    "group",
    protocol="shared_subscriptions",
    record=GroupRecord,
    states=GroupStatus,
    initial=IDLE,
    final=(DONE,),
    rows=ROWS,
    timers=(Timer("again", AgainTimer, (READING, SETTLING)),),
)
