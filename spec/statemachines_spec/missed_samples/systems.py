"""Systems: a publisher of a few samples, a cache of a few, a subscriber, and a network that loses and reorders."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.missed_samples.cache import CrowdedOver
from statemachines.missed_samples.message import QUERY
from statemachines.missed_samples.properties import judge_whole, owes_tail
from statemachines.missed_samples.publisher import (
    CLOSED,
    NEW,
    PUBLISHER,
    Beats,
    Declare,
    HeartbeatDue,
    Publish,
    PublisherRecord,
    Stamped,
)
from statemachines.missed_samples.recovery import Recovery, make_recovery
from statemachines.missed_samples.source_record import (
    Appeared,
    Disappeared,
    Overdue,
    PeriodOver,
    QueryTimeout,
    RetentionOver,
)
from statemachines.missed_samples.subscriber_record import History, HistoryTimeout
from statemachines_spec.explorer.actor import Actor, Crash
from statemachines_spec.explorer.fsm_actor import FsmActor
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Always, Eventually, Property, Sometimes
from statemachines_spec.explorer.system import Budget, Due, System, at_most
from statemachines_spec.missed_samples.fabric import (
    KEY,
    SUBSCRIBER,
    EndEarly,
    EndEmpty,
    Fabric,
    LoseReply,
    Vanish,
    is_under_way,
)
from statemachines_spec.missed_samples.receiver import SampleReceiver
from statemachines_spec.missed_samples.violations import SampleViolation

ALWAYS: Final = 9
"""As many of a kind as there may be: no fault, but what happens in time."""


class SampleSetting(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds a system.

    `sources` that publish `samples` each, the first of them `begin`; `beats` of theirs; `depth` of the cache, which
    is theirs (`local`) or stands elsewhere; `width` of the wire; `single`: a reply brings one sample.  `reliable`:
    every reply comes, before the end; else `lost_replies` are lost, and `early` ends come before their replies;
    `noticed`: an end says that a reply was lost.  `empty` ends come at once; `vanished` queries never end; `slow`
    ones end after their timeout; `periods` pass, `silences` and deadlines (`overdue`) as well.  `crashes` of a
    publisher that goes on counting.  `tokens` appear, `goings` disappear.  `stuck`: sources whose queries reach
    nobody.  `in_flight` samples and heartbeats, which are `lossy`.  `whole`: nothing may be missed.  A query is for
    `window` numbers and `ahead` more, and `windows` are open at a time; a number more than `jump` ahead is doubted.
    `kept_sources` at the subscriber, `queues` in the cache, at most; `crowdings` that the cache sits out.  `shows`:
    what must happen."""

    sources: tuple[str, ...] = ("p",)
    samples: int = 4
    begin: int = 0
    beats: Beats = Beats.OFF
    depth: int = 4
    local: bool = True
    width: int = 64
    single: bool = False
    reliable: bool = True
    past: bool = False
    history: History | None = None
    history_limit: int = 9
    pending: int = 9
    retries: int = 1
    window: int = 9
    windows: int = 1
    ahead: int = 0
    jump: int = 9
    period: bool = False
    lost_replies: int = 0
    noticed: bool = False
    early: int = 0
    empty: int = 0
    vanished: int = 0
    slow: int = 0
    periods: int = 0
    silences: int = 0
    overdue: int = 0
    crashes: int = 0
    tokens: bool = False
    goings: int = 0
    kept_sources: int = 9
    queues: int = 9
    crowdings: int = 0
    stuck: tuple[str, ...] = ()
    in_flight: int = 2
    lossy: bool = True
    ordered: bool = False
    whole: bool = False
    shows: tuple[str, ...] = ()

    def recovery(self) -> Recovery:
        """The subscriber's."""
        return make_recovery(
            past=self.past,
            reliable=self.reliable,
            retries=self.retries,
            window=self.window,
            windows=self.windows,
            ahead=self.ahead,
            jump=self.jump,
            timeout_ms=1_000,
            timeout_min_ms=1_000,
            timeout_max_ms=1_000,
            history_ms=1_000,
            backoff_ms=10,
            backoff_max_ms=15,
            pending=self.pending,
            history_limit=self.history_limit,
            sources=self.kept_sources,
            period_ms=500 if self.period else 0,
            retention_ms=60_000,
        )


VARIANTS = {
    "settled": "as it is shipped",
    "as_written": "the source: what a query has not brought is given up when it ends",
}

SYSTEMS: dict[str, tuple[str, SampleSetting]] = {
    "part": (
        "a reply is lost, and the end of its query says so",
        SampleSetting(samples=3, depth=3, past=True, single=True, noticed=True, lost_replies=2, retries=0, in_flight=1,
                      whole=True, shows=("recovered",)),
    ),
    "ahead": (
        "a query asks for a number more than is known, which may be on its way, or lost as well",
        SampleSetting(samples=4, depth=4, past=True, window=2, windows=2, ahead=1, retries=0, slow=1, in_flight=1,
                      whole=True, shows=("recovered",)),
    ),
    "late": (
        "no query ever ends, and what is missing for too long is given up",
        SampleSetting(samples=3, depth=3, past=True, stuck=("p",), overdue=ALWAYS, shows=("missed",)),
    ),
    "long-hole": (
        "a hole is longer than a window, and the cache has the end of it alone",
        SampleSetting(samples=5, depth=2, past=True, window=2, in_flight=1, ordered=True,
                      shows=("missed", "recovered")),
    ),
    "gap": (
        "samples are lost and overtake each other; the cache has them all, and queries are slow, or never end",
        SampleSetting(samples=3, past=True, retries=3, empty=1, vanished=1, slow=1, whole=True, shows=("recovered",)),
    ),
    "shallow": (
        "a cache of one: what it had to let go is reported",
        SampleSetting(samples=4, depth=1, past=True, empty=1, slow=1, shows=("missed", "recovered")),
    ),
    "two-deep": (
        "a cache of two, of which each reply brings one sample; the first contact decides where counting begins",
        SampleSetting(samples=4, depth=2, single=True, slow=1, shows=("missed",)),
    ),
    "elsewhere": (
        "a cache somewhere in the network, which misses what the network loses",
        SampleSetting(samples=3, depth=3, local=False, past=True, shows=("missed", "recovered")),
    ),
    "small-elsewhere": (
        "a small cache somewhere in the network, where samples overtake each other",
        SampleSetting(samples=3, depth=2, local=False, past=True, lossy=False, in_flight=4, shows=("recovered",)),
    ),
    "unreliable": (
        "replies are lost, overtake each other, and come after the end of their query",
        SampleSetting(
            samples=3, depth=3, single=True, reliable=False, past=True, lost_replies=1, early=1, empty=1,
            shows=("missed", "recovered"),
        ),
    ),
    "early-end": (
        "the end of a query overtakes all of its replies: two attempts more, and the rest is reported",
        SampleSetting(samples=3, depth=3, reliable=False, past=True, early=2, slow=1, shows=("missed", "recovered")),
    ),
    "crowded": (
        "no more than one sample may be held",
        SampleSetting(samples=5, depth=5, pending=1, slow=1, shows=("missed",)),
    ),
    "heartbeats": (
        "the last samples are lost: heartbeats show it",
        SampleSetting(samples=2, depth=2, beats=Beats.PERIODIC, past=True, empty=1, slow=1, shows=("recovered",)),
    ),
    "sporadic": (
        "the last samples are lost: a heartbeat after each change may show it",
        SampleSetting(samples=3, depth=1, beats=Beats.SPORADIC, slow=1, shows=("missed",)),
    ),
    "periodic": (
        "the last samples are lost: periodic queries show it",
        SampleSetting(samples=3, depth=3, period=True, periods=2, empty=1, slow=1),
    ),
    "two-sources": (
        "two publishers: of one every query is stuck, and never ends",
        SampleSetting(sources=("p", "q"), samples=2, depth=2, past=True, stuck=("q",), retries=0, slow=1, overdue=1,
                shows=("missed", "recovered")),
    ),
    "history": (
        "a subscriber that comes late asks for history; two publishers go on meanwhile",
        SampleSetting(sources=("p", "q"), samples=2, depth=2, history=History(), past=True, slow=1, retries=0,
                shows=("recovered",)),
    ),
    "short-history": (
        "of the history one sample of each source is wanted, and two may be held while it is asked for",
        SampleSetting(samples=3, depth=3, history=History(newest=1), history_limit=1, empty=2, slow=1, single=True,
                shows=("missed",)),
    ),
    "history-tokens": (
        "history, tokens and heartbeats at once",
        SampleSetting(samples=2, depth=2, history=History(), tokens=True, goings=1, beats=Beats.SPORADIC, slow=1,
                in_flight=1),
    ),
    "tokens": (
        "sources are known to live, or not; they come, are silent, are forgotten, and come again",
        SampleSetting(samples=2, depth=2, tokens=True, goings=1, silences=3, slow=1, retries=0),
    ),
    "continued": (
        "a publisher dies, and goes on counting",
        SampleSetting(samples=3, depth=3, past=True, crashes=1, beats=Beats.PERIODIC, shows=("recovered",)),
    ),
    "strangers": (
        "one source may be kept, and there are two: the other is turned away until the first is forgotten",
        SampleSetting(sources=("p", "q"), samples=1, depth=1, kept_sources=1, tokens=True, goings=1, silences=1,
                      retries=0, beats=Beats.SPORADIC, in_flight=1, shows=("turned away", "taken after all")),
    ),
    "strange-history": (
        "one source may be kept, and the history of two is asked for",
        SampleSetting(sources=("p", "q"), samples=2, depth=2, kept_sources=1, history=History(), silences=2, retries=0,
                in_flight=1, shows=("turned away", "taken after all")),
    ),
    "crowded-cache": (
        "the cache may have one queue, and there are two sources: the silent one is let go",
        SampleSetting(sources=("p", "q"), samples=3, depth=2, queues=1, crowdings=2, retries=0, in_flight=1,
                shows=("not kept", "let go")),
    ),
    "turn": (
        "numbers of three bits come round in the middle",
        SampleSetting(samples=3, begin=6, width=3, depth=3, beats=Beats.SPORADIC, slow=1),
    ),
    "turn-history": (
        "numbers of three bits come round, and somebody comes late",
        SampleSetting(samples=4, begin=6, width=3, depth=4, history=History(), single=True),
    ),
    "windows": (
        "two queries for one number each are open at a time; one of them ends at once, or never",
        SampleSetting(samples=4, past=True, window=1, windows=2, retries=2, empty=1, slow=1, in_flight=1, whole=True,
                shows=("recovered", "asked for")),
    ),
    "jumps": (
        "a number that is two ahead is believed when the next comes, too",
        SampleSetting(samples=4, depth=4, jump=1, beats=Beats.SPORADIC, in_flight=2, shows=("doubted", "asked for")),
    ),
    "repeated-history": (
        "the first query for history reaches nobody, or is slow, and is sent again",
        SampleSetting(samples=2, depth=2, history=History(), empty=1, slow=1, in_flight=1, whole=True,
                shows=("asked twice",)),
    ),
    "three-deep": (
        "a cache of three, which has let the first of four samples go; a query may end at once",
        SampleSetting(samples=4, depth=3, past=True, empty=1, slow=1, shows=("missed", "recovered")),
    ),
}  # fmt: skip
"""Name -> (about, bounds)."""


def system(name: str, size: str = "small", variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """The system called so."""
    about, setting = SYSTEMS[name]
    return build(name, about, setting, variant)


def build(name: str, about: str, setting: SampleSetting, variant: str = "settled") -> System:
    """The system with these bounds."""
    recovery = setting.recovery()
    receiver = SampleReceiver(
        sources=setting.sources,
        recovery=recovery,
        count=setting.samples,
        history=setting.history,
        width=setting.width,
        begin=setting.begin,
        silent=(*(() if setting.silences else ("retention",)), *(() if setting.overdue else ("overdue",))),
        tokens=setting.tokens,
        leaves=setting.goings > 0,
        gives_up=variant == "as_written",
    )
    fabric = Fabric(
        history=setting.depth,
        width=setting.width,
        local=setting.local,
        sources=len(setting.sources),
        reliable=setting.reliable,
        noticed=setting.noticed,
        stuck=setting.stuck,
        single=setting.single,
        begin=setting.begin,
        queues=setting.queues,
        places=setting.windows + 2,
    )
    senders = tuple(sender(source, setting) for source in setting.sources)
    actors: tuple[Actor, ...] = (*senders, fabric, receiver)
    return System(
        name,
        about,
        actors,
        Network(setting.in_flight, lossy=setting.lossy, duplicating=False, ordered=setting.ordered),
        properties=tuple(properties(receiver, fabric, setting)),
        budgets=budgets(setting),
        bounds={"a slow query": "ends after its timeout", "a cache": "takes what it keeps at once"},
        obligations=obligations(receiver, senders, setting),
    )


def sender(source: str, setting: SampleSetting) -> FsmActor:
    """A publisher."""
    end = setting.begin + setting.samples

    def calls(record: PublisherRecord) -> Iterable[Any]:
        return (Publish(),) if record.status not in (NEW, CLOSED) and record.next < end else ()

    def goes_on(crashed: PublisherRecord, fresh: PublisherRecord) -> PublisherRecord:
        return replace(fresh, next=crashed.next)

    record = PublisherRecord(source, KEY, setting.beats, width=setting.width, next=setting.begin)
    return FsmActor(
        source,
        PUBLISHER,
        record,
        lives=1 + setting.crashes,
        faults=(Crash,) if setting.crashes else (),
        disk=goes_on,
        start=Declare(),
        calls=calls,
        route=partial(_everybody, setting.local),
        tells={Stamped: QUERY} if setting.local else {},
    )


def _everybody(local: bool, to: str) -> Iterable[str]:
    return (SUBSCRIBER,) if local else (QUERY, SUBSCRIBER)


def budgets(setting: SampleSetting) -> tuple[Budget, ...]:
    """How many faults there are of each kind."""
    return (
        at_most("queries that end at once", setting.empty, EndEmpty),
        at_most("queries that never end", setting.vanished, Vanish),
        Budget("slow queries", setting.slow + setting.vanished, _is_timeout, Due(_whose, is_under_way)),
        at_most("lost replies", setting.lost_replies, LoseReply),
        at_most("early ends", setting.early, EndEarly),
        at_most("periods", setting.periods, PeriodOver),
        at_most("silences", setting.silences, RetentionOver),
        *((at_most("deadlines", setting.overdue, Overdue),) if setting.overdue < ALWAYS else ()),
        at_most("crowdings of the cache", setting.crowdings, CrowdedOver),
        at_most("crashes", setting.crashes, Crash),
        at_most("tokens that appear", 1 + setting.goings, Appeared),
        at_most("tokens that disappear", setting.goings, Disappeared),
        *((at_most("first heartbeats", 0, HeartbeatDue),) if setting.beats is Beats.OFF else ()),
    )


def _is_timeout(actor: str, event: Any) -> bool:
    return isinstance(event, QueryTimeout | HistoryTimeout)


def _whose(actor: str, local: Any, event: Any) -> str | None:
    """The source that waits for its query ("*": all of them)."""
    return event.key or "*" if _is_timeout(actor, event) else None


def properties(receiver: SampleReceiver, fabric: Fabric, setting: SampleSetting) -> list[Property]:
    """What must hold, and what must happen sometimes."""
    of_cache = (SampleViolation.REPLIES, SampleViolation.QUEUES)
    found: list[Property] = [never(receiver, how) for how in SampleViolation if how not in of_cache]
    found += [Always(how.name, f"never: {how.value}", (fabric.is_broken(how),), _not) for how in of_cache]
    if setting.whole:
        found.append(Always("WHOLE", "nothing that the cache has is missed", (receiver.has_missed(),), _is_whole))
    shown = {
        "missed": receiver.has_missed(),
        "recovered": receiver.has_recovered(),
        "asked for": receiver.is_asking(),
        "turned away": receiver.has_turned_away(),
        "taken after all": receiver.has_taken_after_all(),
        "doubted": receiver.has_doubted(),
        "asked twice": receiver.has_asked_twice(),
        "not kept": fabric.has_turned_away(),
        "let go": fabric.has_let_go(),
    }
    found += [Sometimes(f"something is {what}", "", (shown[what],), bool) for what in setting.shows]
    return found


def never(receiver: SampleReceiver, how: SampleViolation) -> Always:
    """This is never broken."""
    return Always(how.name, f"never: {how.value}", (receiver.is_broken(how),), _not)


def obligations(
    receiver: SampleReceiver, senders: tuple[FsmActor, ...], setting: SampleSetting
) -> tuple[Eventually, ...]:
    """What must be met sooner or later."""
    found = []
    if len(setting.stuck) in (0, len(setting.sources)):
        found.append(Eventually("LIVE", "every hole is delivered or reported", (receiver.has_hole(),), bool))
    else:
        free = tuple(one for one in setting.sources if one not in setting.stuck)
        text = "the holes of a source are settled, whatever another waits for"
        found.append(Eventually("ISOLATION", text, (receiver.has_hole(*free),), bool))
    if setting.beats is Beats.PERIODIC and setting.past:
        begin, size = setting.begin, setting.samples + 1
        sent = senders[0].view(lambda record: record.next - begin, size, gone=0)
        text = "everything that is published is delivered or reported"
        found.append(Eventually("TAIL", text, (sent, receiver.is_settled()), owes_tail))
    return tuple(found)


def _is_whole(missed: int) -> bool:
    return not judge_whole(bool(missed))


def _not(value: int) -> bool:
    return not value
