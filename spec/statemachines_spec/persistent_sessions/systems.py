"""Systems: writers, a session that resumes, a database whose replica lags, and a client that judges what comes."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import STAY, Fsm, Request, Row, incarnation
from statemachines.persistent_sessions.delivery import READY
from statemachines.persistent_sessions.message import Live, LiveMarker, MessageExpired, Publish, Pubrel, Written
from statemachines.persistent_sessions.properties.delivered_messages import MessageProperty
from statemachines.persistent_sessions.properties.session_owners import list_unfinished
from statemachines.persistent_sessions.request import (
    BeginEpoch,
    CommitState,
    Fence,
    PutMarker,
    PutRows,
    ReadPending,
    ReadRow,
    RowsConfirmed,
)
from statemachines.persistent_sessions.resume import RESUME
from statemachines.persistent_sessions.resume_record import (
    NORMAL,
    ConnectionLost,
    Discarded,
    ResumeRecord,
    ResumeSession,
    ResumeTimeout,
)
from statemachines.persistent_sessions.session_tables import SESSION
from statemachines.persistent_sessions.times import Times
from statemachines.persistent_sessions.writer import WRITER
from statemachines.persistent_sessions.writer_flow import BEHIND, DONE, DRAINING, LinkLost, MarkerTimeout
from statemachines.persistent_sessions.writer_record import (
    BEGINNING,
    BUSY,
    IDLE,
    RANGE_MAX,
    RangeWritten,
    Start,
    WriterRecord,
)
from statemachines_spec.explorer.actor import Crash
from statemachines_spec.explorer.fsm_actor import DOWN, ENDED, FsmLocal
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Always, Eventually, Property, Sometimes, Stepwise, View
from statemachines_spec.explorer.system import System, at_most
from statemachines_spec.explorer.variant import substitute_rows
from statemachines_spec.persistent_sessions.client import (
    CLIENT,
    AcknowledgeTwice,
    MovingPublisher,
    ReconnectingClient,
    SessionPublisherActor,
)
from statemachines_spec.persistent_sessions.clients import AttachedActor
from statemachines_spec.persistent_sessions.database import Blur, DatabaseService, Fail
from statemachines_spec.persistent_sessions.node_database import CLUSTER, Break, Cluster, Lose

OWNER = "owner"


class SessionSetting(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds a system.

    `messages` of each writer; `lag` of the replica; `ordered` paths and `appears` in order; `owner_lives` one after
    the other, or `second`: another owner beside the first, and a `third`.  `writer_lives`, `silences` (a writer is
    taken for dead), `breaks` of paths; `unclear` answers to writers; `slow` requests; `places` of a path; `markers`
    of a writer that are asked for at most. `repeats`: requests for markers are repeated, and may get `lost`. `hides`:
    rows that are marked are not read again; `spreads`: a subscription is known everywhere at once; `late`: resumes
    that take too long; `buffer`, `queue`, `window`: resume buffer, what may be
    queued, and receive maximum; `leaves` of a client; `widens`: the
    receive maximum grows by one with each life; `twice`: acknowledgements that come twice; `folds`: those that
    come together; `beside`: the first writer is beside an owner that did not begin.  `untils`: when each message of a
    writer is over (0: never), in turn; the clock of the database goes on until all are.  `range_max` rows of a writer
    are stored in one request.  `course`: one publisher sends to these writers, by their places, one message after the
    other, each when the one before it is answered, or its writer has died.  `opens`: rows have their number before they
    are committed.  Each message matches so many `filters` of the session.
    """

    messages: tuple[int, ...] = (2, 1)
    lag: int = 1
    ordered: bool = True
    appears: bool = True
    owner_lives: int = 1
    second: bool = False
    third: bool = False
    writer_lives: int = 1
    silences: int = 0
    breaks: int = 0
    unclear: int = 0
    slow: tuple[type[Request], ...] = (CommitState,)
    places: int = 2
    markers: int = 2
    hides: bool = False
    repeats: bool = False
    lost: bool = True
    spreads: bool = True
    overdue: int = 0
    leaves: int = 0
    widens: bool = False
    twice: int = 0
    absent: bool = False
    halves: int = 0
    buffer: int = 9
    queue: int = 9
    window: int = 9
    qos: int = 1
    later: bool = False
    folds: bool = False
    jumbled: bool = False
    untils: tuple[int, ...] = ()
    range_max: int = RANGE_MAX
    together: bool = False
    beside: bool = False
    course: tuple[int, ...] = ()
    opens: bool = False
    filters: int = 1

    @property
    def writers(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(f"writer-{n}" for n in range(1, len(self.messages) + 1))

    @property
    def owners(self) -> tuple[str, ...]:
        """Their names."""
        count = 2 * self.second + self.third
        return tuple(f"{OWNER}-{n}" for n in range(1, count + 1)) or (OWNER,)

    def times(self, life: int) -> Times:
        """Those of the owners."""
        wider = life - 1 if self.widens else 0
        return Times(resume_buffer=self.buffer, queue=self.queue, receive_maximum=self.window + wider)


VARIANTS = {
    "settled": "as it is shipped",
    "as_written": "the source: what a path that breaks has lost is not asked for",
}

SYSTEMS: dict[str, tuple[str, SessionSetting]] = {
    "two-writers": (
        "two writers go on while a session resumes; the replica is behind by one entry of each",
        SessionSetting(messages=(1, 1), lag=1, markers=1),
    ),
    "no-lag": (
        "a writer goes on while a session resumes; the replica is never behind, and rows that are marked are gone",
        SessionSetting(messages=(3,), lag=0, hides=True, repeats=True),
    ),
    "lag": (
        "the same, and the replica is behind by two",
        SessionSetting(messages=(3,), lag=2, hides=True, repeats=True),
    ),
    "resumes": (
        "the owner dies, and the session resumes again, twice",
        SessionSetting(messages=(2,), lag=1, owner_lives=3, markers=1),
    ),
    "second": (
        "another owner resumes the session while the first does",
        SessionSetting(messages=(2,), lag=1, second=True, hides=True),
    ),
    "writer-crash": (
        "the writer dies, is reported dead, and comes back under the next epoch",
        SessionSetting(messages=(2,), lag=1, writer_lives=2, markers=2, repeats=True),
    ),
    "silence": (
        "a writer that is slow is taken for dead, and fenced",
        SessionSetting(messages=(2,), lag=1, silences=1, slow=(PutRows, PutMarker)),
    ),
    "fenced-beside": (
        "the writer beside an owner that did not begin is fenced as the session resumes, and goes on",
        SessionSetting(messages=(2,), lag=1, beside=True, slow=(PutRows, PutMarker)),
    ),
    "break": (
        "the path of a writer breaks, and what is on it is lost",
        SessionSetting(messages=(3,), lag=0, breaks=1, markers=3),
    ),
    "unclear": (
        "a writer does not learn whether its row is stored, and may be fenced meanwhile",
        SessionSetting(messages=(2,), lag=0, unclear=1, silences=1, slow=(PutRows, PutMarker, ReadRow)),
    ),
    "range": (
        "what waits is stored two rows at a time; the writer dies amid that, or does not learn what became of it",
        SessionSetting(
            messages=(3,), range_max=2, lag=0, unclear=1, writer_lives=2, markers=3, slow=(PutRows, PutMarker)
        ),
    ),
    "handed-together": (
        "messages of several publishers are handed over together, or one by one; a writer dies, an answer is lost",
        SessionSetting(
            messages=(3,),
            together=True,
            range_max=2,
            lag=0,
            unclear=1,
            writer_lives=2,
            markers=2,
            slow=(PutRows, PutMarker),
        ),
    ),
    "range-and-fence": (
        "the same, and the writer is fenced: what it has asked for is stored anew, all of it",
        SessionSetting(messages=(3,), range_max=2, lag=0, unclear=1, silences=1, markers=2, slow=(PutRows, ReadRow)),
    ),
    "overlapping": (
        "a message matches two filters and is one row: its owner dies between the copies, its writer amid the row",
        SessionSetting(
            messages=(2,),
            filters=2,
            lag=0,
            window=1,
            later=True,
            owner_lives=2,
            writer_lives=2,
            markers=2,
            slow=(CommitState, PutRows),
        ),
    ),
    "buffer": (
        "no more than one live message may be kept",
        SessionSetting(messages=(3,), lag=1, buffer=1, markers=3),
    ),
    "receive-maximum": (
        "one message may be in flight, and the client takes its time",
        SessionSetting(messages=(3,), lag=0, window=1, later=True),
    ),
    "page-by-page": (
        "one row is read at a time, as the client acknowledges, while a writer goes on; the owner dies",
        SessionSetting(messages=(3,), lag=1, window=2, later=True, owner_lives=2, markers=1, hides=True),
    ),
    "fenced-page-by-page": (
        "a writer is fenced, goes on under the next epoch, and one row of it is read at a time",
        SessionSetting(messages=(3,), lag=0, window=1, later=True, silences=1, markers=3, slow=(Fence,)),
    ),
    "dies-page-by-page": (
        "the writer dies or is taken for dead, and comes back under the next epoch, while one row is read at a time",
        SessionSetting(messages=(2,), lag=0, window=1, later=True, writer_lives=2, silences=1, markers=2, repeats=True),
    ),
    "crowded": (
        "one message may be in flight, one be queued, and one live one be kept; a writer goes on, the owner dies",
        SessionSetting(
            messages=(4,), lag=1, window=1, queue=1, buffer=1, later=True, owner_lives=2, markers=1, hides=True
        ),
    ),
    "crowded-and-fenced": (
        "the same, and the writer is fenced, or its path breaks, while the client takes its time",
        SessionSetting(messages=(4,), lag=0, window=1, queue=1, buffer=1, later=True, silences=1, breaks=1, markers=3),
    ),
    "crowded-at-once": (
        "QoS 0: one message may wait for a commit, so its writer is faster than the database",
        SessionSetting(messages=(4,), lag=1, queue=1, qos=0, markers=1),
    ),
    "at-most-once": (
        "QoS 0; the owner dies",
        SessionSetting(messages=(2,), lag=0, owner_lives=2, qos=0, hides=True),
    ),
    "at-least-once": (
        "QoS 1, two messages in flight; the owner dies twice",
        SessionSetting(messages=(2,), lag=0, later=True, owner_lives=3, markers=1),
    ),
    "acknowledged-together": (
        "QoS 1, two messages in flight at a time, whose acknowledgements may come together; the owner dies",
        SessionSetting(messages=(4,), lag=0, window=2, later=True, folds=True, owner_lives=2, markers=1),
    ),
    "exactly-once": (
        "QoS 2; the owner dies twice",
        SessionSetting(messages=(1,), lag=0, later=True, owner_lives=3, qos=2, hides=True),
    ),
    "received-twice": (
        "QoS 2, and a client that says twice what it has received",
        SessionSetting(messages=(2,), lag=0, later=True, qos=2, twice=2),
    ),
    "exactly-once-in-turn": (
        "QoS 2, one message in flight at a time; the owner dies",
        SessionSetting(messages=(2,), lag=0, window=1, later=True, owner_lives=2, qos=2),
    ),
    "keeps": (
        "four messages may be in flight, and the client keeps what it has, until it has more",
        SessionSetting(messages=(4,), lag=0, window=4, later=True, markers=1, hides=True),
    ),
    "wider": (
        "one message may be in flight at first, and two when the session has resumed",
        SessionSetting(messages=(3,), lag=0, window=1, widens=True, later=True, owner_lives=2, markers=1),
    ),
    "jumbled-replica": (
        "entries of a writer appear in any order on the replica",
        SessionSetting(messages=(2,), lag=3, appears=False, slow=(PutRows, PutMarker)),
    ),
    "marked": (
        "rows that are marked are gone, and the owner dies",
        SessionSetting(messages=(1,), lag=0, owner_lives=2, hides=True),
    ),
    "overtaking": (
        "live messages of a writer overtake each other",
        SessionSetting(messages=(3,), lag=0, ordered=False, places=3, markers=3, slow=()),
    ),
    "slow-reads": (
        "what was read comes when the path has broken, and another marker was asked for",
        SessionSetting(messages=(2,), lag=0, breaks=1, markers=3, slow=(ReadPending, PutMarker), repeats=True),
    ),
    "slow-fence": (
        "a writer is fenced, and goes on while its rows are read",
        SessionSetting(messages=(2,), lag=0, silences=1, writer_lives=2, markers=3, slow=(Fence,)),
    ),
    "fence-and-break": (
        "the path breaks while the writer is fenced",
        SessionSetting(messages=(3,), lag=0, silences=1, breaks=1, markers=4, slow=(Fence,)),
    ),
    "writer-begins": (
        "a writer begins, dies and begins again while messages come; its path may break",
        SessionSetting(messages=(2,), lag=0, writer_lives=2, breaks=1, markers=3, slow=(BeginEpoch,)),
    ),
    "leaving": (
        "the client leaves, or its session is discarded here, and another owner resumes it",
        SessionSetting(messages=(2,), lag=0, second=True, leaves=1),
    ),
    "aging": (
        "messages expire at any moment before they are sent, or then; one may be in flight, and two are over together",
        SessionSetting(messages=(3,), untils=(1, 1, 0), lag=0, window=1, later=True, markers=1, hides=True),
    ),
    "aging-at-most-once": (
        "QoS 0: messages expire at any moment before they are sent, or then",
        SessionSetting(messages=(2,), untils=(1, 0), lag=0, qos=0, markers=1),
    ),
    "aging-exactly-once": (
        "QoS 2: messages expire at any moment, on their way as well; the owner dies",
        SessionSetting(messages=(2,), untils=(1, 0), lag=0, window=1, later=True, owner_lives=2, qos=2, markers=1),
    ),
    "aging-together": (
        "several messages are committed together, of which one may be over, while a writer goes on",
        SessionSetting(messages=(3,), untils=(0, 1, 0), lag=0, markers=1, hides=True),
    ),
    "moving": (
        "a publisher goes from one writer to another, and back, while a session resumes",
        SessionSetting(messages=(2, 1), course=(0, 1, 0), lag=0, markers=1, hides=True, places=3),
    ),
    "moving-and-lag": (
        "a publisher goes to another writer while a session resumes; the replica is behind by one entry of each",
        SessionSetting(messages=(1, 2), course=(0, 1, 1), lag=1, markers=1),
    ),
    "moving-node-stops": (
        "a publisher goes to another writer; a writer dies, and comes back under the next epoch",
        SessionSetting(messages=(1, 1), course=(0, 1), lag=0, writer_lives=2, markers=2, hides=True),
    ),
    "moving-link-breaks": (
        "a publisher goes to another writer; the path of a writer breaks, and what is on it is lost",
        SessionSetting(messages=(1, 2), course=(0, 1, 1), lag=0, breaks=1, markers=2, hides=True),
    ),
    "moving-page-by-page": (
        "a publisher goes to another writer and back; one row is read at a time, as the client acknowledges",
        SessionSetting(messages=(2, 1), course=(0, 1, 0), lag=0, window=1, later=True, markers=1, hides=True),
    ),
    "moving-fenced": (
        "a publisher goes to another writer; the first is taken for dead, fenced, and read one row at a time",
        SessionSetting(
            messages=(2, 1),
            course=(0, 0, 1),
            lag=0,
            window=1,
            later=True,
            silences=1,
            slow=(Fence,),
            markers=2,
            hides=True,
        ),
    ),
    "moving-owner-dies": (
        "a publisher goes to another writer; the owner dies, and the replica is behind by one entry of each",
        SessionSetting(messages=(1, 1), course=(0, 1), lag=1, owner_lives=2, markers=1),
    ),
    "moving-and-open": (
        "a publisher goes to another writer, and back; rows have their number when their transaction begins",
        SessionSetting(
            messages=(2, 1), course=(0, 1, 0), lag=0, markers=1, hides=True, places=3, slow=(PutRows,), opens=True
        ),
    ),
    "absent": (
        "the session has expired",
        SessionSetting(messages=(1,), lag=0, absent=True),
    ),
    "overdue": (
        "a resume takes too long, and another owner resumes",
        SessionSetting(messages=(2,), lag=0, overdue=1, second=True),
    ),
}
"""Name -> (about, bounds)."""

CI: dict[str, tuple[str, SessionSetting]] = {
    "no-lag": (
        "two writers of three messages each go on while a session resumes; the replica is never behind",
        SessionSetting(messages=(3, 3), lag=0, markers=1),
    ),
    "two-writers": (
        "the same, and the replica is behind by one entry of each",
        SessionSetting(messages=(3, 3), lag=1, markers=1),
    ),
    "lag": (
        "the same, and the replica is behind by two",
        SessionSetting(messages=(3, 3), lag=2, markers=1),
    ),
}
"""The same at size `ci`, where all others are as small."""


def system(name: str, size: str = "small", variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """The system called so."""
    about, setting = CI.get(name, SYSTEMS[name]) if size == "ci" else SYSTEMS[name]
    return build(name, about, setting, variant)


def database_arguments(setting: SessionSetting) -> dict[str, Any]:
    """What bounds the database."""
    return {
        "lag": setting.lag,
        "ordered": setting.appears,
        "slow": setting.slow,
        "unclear": setting.unclear > 0,
        "hides": setting.hides,
        "spreads": setting.spreads,
        "absent": setting.absent,
        "begun": 0 if setting.writer_lives > 1 else 1,
        "ages": max(setting.untils, default=0),
        "stamps": bool(setting.course),
        "opens": setting.opens,
    }


def build(
    name: str, about: str, setting: SessionSetting, variant: str = "settled", database: DatabaseService | None = None
) -> System:
    """The system with these bounds, and with this database if one is given."""
    owners = tuple(owner(one, setting, number, variant) for number, one in enumerate(setting.owners))
    writers = tuple(writer(one, setting) for one in setting.writers)
    if database is None:
        database = DatabaseService(setting.writers, setting.owners, **database_arguments(setting))
    cluster = Cluster(setting.writers, setting.owners, places=setting.places, ordered=setting.ordered)
    loses = setting.qos == 0 and setting.owner_lives > 1
    window = setting.window + setting.widens
    ids = {
        one: tuple(f"{one[-1]}{n}" for n in range(1, count + 1))
        for one, count in zip(setting.writers, setting.messages, strict=True)
    }
    left = {one: iter(each) for one, each in ids.items()}
    course = tuple((setting.writers[place], next(left[setting.writers[place]])) for place in setting.course)
    untils = {one: until for each in ids.values() for one, until in zip(each, setting.untils, strict=False) if until}
    client = ReconnectingClient(
        setting.writers,
        setting.owners,
        later=setting.later,
        loses=loses,
        window=window,
        folds=setting.folds,
        untils=untils,
        course=tuple(message for _, message in course),
    )
    publisher = (
        MovingPublisher(course)
        if course
        else SessionPublisherActor(
            ids,
            jumbled=setting.jumbled,
            together=setting.together,
            qos=setting.qos,
            untils=untils,
            filters=setting.filters,
        )
    )
    return System(
        name,
        about,
        (*owners, *writers, database, cluster, client, publisher),
        Network(1, lossy=setting.lost, duplicating=False)
        if setting.repeats
        else Network(2, lossy=False, duplicating=False),
        properties=tuple(properties(owners, writers, database, cluster, client, setting)),
        budgets=(
            at_most("crashes of owners", setting.owner_lives - 1, Crash, actors=setting.owners),
            at_most("crashes of writers", setting.writer_lives - 1, Crash, actors=setting.writers),
            at_most("writers that are silent for too long", setting.silences, MarkerTimeout),
            at_most("broken paths", setting.breaks, Break),
            at_most("answers that are lost", setting.unclear, Blur, Fail),
            at_most("clients that leave", setting.leaves, ConnectionLost, Discarded),
            at_most("acknowledgements that come twice", setting.twice, AcknowledgeTwice),
            at_most("steps of a writer that are cut", setting.halves, Lose),
            at_most("resumes that take too long", setting.overdue, ResumeTimeout),
        ),
        obligations=obligations(owners, writers),
    )


def owner(name: str, setting: SessionSetting, number: int, variant: str) -> AttachedActor:
    """A session at an owner; each life has the next token."""

    def fresh(life: int) -> ResumeRecord:
        silent = setting.writers[0] if setting.beside else ""
        return ResumeRecord(incarnation(name, life), CLIENT, life + number, setting.times(life), silent=silent)

    def asks_no_more(record: ResumeRecord) -> bool:
        """so many markers of each writer are asked for, and no more"""
        return all(flow.n <= setting.markers for flow in record.flows.values())

    return AttachedActor(
        name,
        resume_machine(variant),
        fresh,
        lives=setting.owner_lives,
        faults=(Crash,) if setting.owner_lives > 1 else (),
        start=ResumeSession(),
        calls=(lambda record: (ConnectionLost(), Discarded())) if setting.leaves else None,
        beside={Publish: CLIENT, Pubrel: CLIENT},
        tells={MessageExpired: CLIENT} if setting.untils else None,
        silent=() if setting.repeats else ("repeat",),
        bound=asks_no_more,
    )


def resume_machine(variant: str) -> Fsm[Any]:
    """The machine of a session in a variant."""

    def ignore_path(row: Row) -> Row:
        return Row(row.on, row.source, STAY, None, row.when, row.clause) if row.on is LinkLost else row

    return substitute_rows(RESUME, ignore_path) if variant == "as_written" else RESUME


def writer(name: str, setting: SessionSetting) -> AttachedActor:
    """A writer; each life has the next epoch."""
    again = setting.writer_lives > 1
    begun = WriterRecord(SESSION, name, range_max=setting.range_max)
    return AttachedActor(
        name,
        WRITER,
        begun if again else replace(begun, status=IDLE, epoch=1),
        lives=setting.writer_lives,
        faults=(Crash,) if setting.writer_lives > 1 else (),
        start=Start() if again else None,
        beside={Live: CLUSTER, LiveMarker: CLUSTER},
        tells={Written: CLIENT, RangeWritten: CLIENT},
    )


# -- what must hold -------------------------------------------------------------------------------------------------


def is_full(record: ResumeRecord) -> bool:
    """The client has not acknowledged enough for the next page."""
    delivery = record.delivery
    if delivery is None:
        return False
    room = record.times.receive_maximum - len(delivery.state.packets)
    return bool(delivery.inbox or delivery.state.queued) or room < record.times.page


def is_synchronised(record: ResumeRecord) -> bool:
    """Every writer is done, or waits for the client; and nothing waits for a commit."""
    full = is_full(record)
    done = all(flow.status is DONE or (full and flow.status in (BEHIND, DRAINING)) for flow in record.flows.values())
    return done and record.delivery is not None and record.delivery.status is READY


def has_settled(record: ResumeRecord) -> bool:
    """Every writer is done, and nothing waits for a commit, nor for what is being read."""
    done = all(flow.status is DONE for flow in record.flows.values()) and not record.reads
    return done and record.delivery is not None and record.delivery.status is READY


def rests(owner: AttachedActor) -> View:
    """0: there is none; 1: it is at work; 2: it is in normal operation, and nothing is under way."""

    def read(local: FsmLocal) -> int:
        if local.party is None or local.mode in (DOWN, ENDED):
            return 0
        record = local.party.record
        if any(list_unfinished(owner.name, record)):
            return 1
        return 2 if has_settled(record) and not record.delivery.state.queued else 1

    return View(owner.name, 3, read)


def idle(one: AttachedActor) -> View:
    """A writer that has nothing to do, or is dead."""

    def read(local: FsmLocal) -> int:
        return int(local.party is None or local.party.record.status is IDLE)

    return View(one.name, 2, read)


def is_at_work(one: AttachedActor) -> View:
    """A writer that lives begins, stores, reads or marks."""

    def read(local: FsmLocal) -> int:
        return int(local.party is not None and local.party.record.status in (BEGINNING, *BUSY))

    return View(one.name, 2, read)


def has_range(one: AttachedActor) -> View:
    """How many rows a writer has asked for in one request."""

    def read(local: FsmLocal) -> int:
        job = None if local.party is None else local.party.record.job
        return 0 if job is None else len(job.hands)

    return View(one.name, RANGE_MAX + 1, read)


def is_complete(*seen: int) -> bool:
    """Where a session is in normal operation and nobody has anything to do, all that is stored has come."""
    *others, has_all = seen
    *others, database, cluster = others
    return bool(has_all) or not (database and cluster and all(others))


def takes_what_there_is_room_for(actor: str, before: Any, event: Any, after: Any) -> bool:
    """While as many wait as may, nothing more is taken, but what was handed over and confirmed."""
    was, now = (getattr(one, "party", None) for one in (before, after))
    if was is None or now is None or not isinstance(was.record, ResumeRecord):
        return True
    if isinstance(event, RowsConfirmed) or not is_crowded(was.record) or not isinstance(now.record, ResumeRecord):
        return True
    return find_taken(now.record) == find_taken(was.record)


def is_crowded(record: ResumeRecord) -> bool:
    """As many messages are queued, or changes wait for a commit, as may."""
    delivery = record.delivery
    return delivery is not None and len(delivery.state.queued) + len(delivery.inbox) >= record.times.queue


def find_taken(record: ResumeRecord) -> dict[str, tuple[int, int]]:
    """Of each writer the last that is in the state, or waits for the next commit."""
    delivery = record.delivery
    if delivery is None:
        return {}
    found = dict(delivery.state.taken.items())
    for take in (change.take for change in delivery.inbox):
        if take is not None:
            found[take.writer] = (take.epoch, take.rows[-1].number)
    return found


def waits_for_ever(owner: AttachedActor) -> View:
    """Whether a writer waits for room, and there is some, and nothing will ever be done about it but by the client."""

    def read(local: FsmLocal) -> int:
        if local.party is None:
            return 0
        record = local.party.record
        if not isinstance(record, ResumeRecord) or record.status is not NORMAL or is_crowded(record):
            return 0
        delivery = record.delivery
        if delivery is None or delivery.status is not READY or delivery.inbox or delivery.state.queued:
            return 0
        starved = any(flow.status in (BEHIND, DRAINING) for flow in record.flows.values())
        has_room = len(delivery.state.packets) < delivery.receive_maximum
        return int(starved and has_room and ("lull", "") not in local.party.timers)

    return View(owner.name, 2, read)


def begins_normally(actor: str, before: Any, event: Any, after: Any) -> bool:
    """Whoever comes to normal operation has nothing left to do for it."""
    was, now = (getattr(one, "party", None) for one in (before, after))
    if was is None or now is None or not isinstance(now.record, ResumeRecord) or now.record.status is not NORMAL:
        return True
    return was.record.status is NORMAL or is_synchronised(now.record)


def properties(
    owners: tuple[AttachedActor, ...],
    writers: tuple[AttachedActor, ...],
    database: DatabaseService,
    cluster: Cluster,
    client: ReconnectingClient,
    setting: SessionSetting,
) -> list[Property]:
    """What must hold, and what must happen sometimes."""
    loses = client.loses
    left_out = ({MessageProperty.GAP} if loses else set()) | (set() if setting.untils else {MessageProperty.AGED})
    left_out |= set() if setting.course else {MessageProperty.ORDER}
    found: list[Property] = [
        Always(how.name, f"never: {how.value}", (client.has_broken(how.name),), lambda broken: not broken)
        for how in MessageProperty
        if how not in left_out
    ]
    text = "normal operation begins when every writer is synchronised, or waits for the client, and all that was taken "
    text += "is committed"
    found.append(Stepwise("NORMAL", text, begins_normally))
    text = "while as many messages wait for the client as may, nothing more is taken"
    found.append(Stepwise("BOUNDED", text, takes_what_there_is_room_for))
    if setting.later and setting.times(1).page > 1:
        text = "where the client has room, and a writer waits for it, that is looked at though the client does nothing"
        found += [Always("KEEPS", text, (waits_for_ever(one),), lambda waits: not waits) for one in owners]
    last = rests(owners[-1])
    at_rest = View(last.actor, 2, lambda local: int(last.of(local) == 2))
    views = (at_rest, *(idle(one) for one in writers), database.rests(), cluster.rests(), client.has_all())
    text = "in normal operation, when nobody has anything to do, all that is stored has come"
    if not loses:
        found.append(Always("COMPLETE", text, views, is_complete, quiet=True))
    total = sum(setting.messages)
    if setting.absent:
        return found
    found.append(Sometimes("all is delivered", "", (client.has_got(total),), bool))
    found.append(Sometimes("in normal operation", "", (at_rest,), bool))
    if PutRows in setting.slow and setting.range_max < RANGE_MAX:
        several = tuple(has_range(one) for one in writers)
        found.append(Sometimes("several rows are under way at once", "", several, lambda *counts: max(counts) > 1))
    if setting.untils:
        found.append(Sometimes("something is passed over", "", (client.has_missed(1),), bool))
    return found


def obligations(owners: tuple[AttachedActor, ...], writers: tuple[AttachedActor, ...]) -> tuple[Eventually, ...]:
    """What must be met sooner or later."""
    last = rests(owners[-1])
    busy = View(last.actor, 2, lambda local: int(last.of(local) == 1))
    text = "a writer ends what it works at"
    works = (Eventually(f"WRITES {one.name}", text, (is_at_work(one),), bool) for one in writers)
    return (Eventually("ENDS", "a resume ends", (busy,), bool), *works)
