"""What a cache owes its host and whoever asks it, whatever comes by: MS-40 to MS-49.

What a query is about stands beside its text, in a table: no parser is asked here, and no key is matched.  What a cache
has is a set of numbers, of which the highest are kept.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Send, Stop, Tell
from statemachines.missed_samples.cache import (
    CACHE,
    CacheQuery,
    CacheRecord,
    CrowdedOver,
    LetGo,
    NotKept,
    Published,
    Reply,
    ReplyEnded,
    ReplyRefused,
    Withdraw,
)
from statemachines.missed_samples.message import EVERY_SOURCE
from statemachines_spec.contract import Machine, contract
from statemachines_spec.explorer.actor import Timing
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.table_contract import Duty, PhaseClock, TableContract, TableFacts

P, Q, R = "p", "q", "r"
ASKER: Final = "s"
N: Final = 5
"""The number of a query; it goes with every answer."""
NOW_NS: Final = 2_020
TICK_NS: Final = 1_000_000
RETENTION: Final = 2
"""Ticks."""

Place = tuple[str, str]
Held = tuple[tuple[int, int], ...]
"""(number, when it was published), by number; 0: nobody says when."""
Said = tuple[Any, ...]


class QuerySelection(msgspec.Struct, frozen=True):
    """What a query is about: `keys` (None: all), numbers of the wire from `first` to `last`, the `newest` of each
    queue, and what was published from `begin` to `end`; `wrong`: the parameter that cannot be read ("": none)."""

    keys: tuple[str, ...] | None = None
    first: int | None = None
    last: int | None = None
    newest: int | None = None
    begin: int | None = None
    end: int | None = None
    wrong: str = ""


class CacheCast(msgspec.Struct, frozen=True):
    """A cache that begins with this `record`; what is `brought` to it, and what of that it is there for; what it is
    `asked`: a query and what that is about; no number above `top` comes; `idle`: rules that nothing is for."""

    record: CacheRecord
    brought: tuple[Published, ...]
    asked: tuple[tuple[CacheQuery, QuerySelection], ...]
    foreign: tuple[Published, ...] = ()
    top: int = 1_000
    idle: tuple[str, ...] = ()


class CacheFacts(TableFacts, frozen=True, gc=False):
    """Of a cache that begins with this `record`: what every queue holds, by (source, key); who was `heard` since the
    first was turned away."""

    record: CacheRecord = CacheRecord()
    queues: tuple[tuple[Place, Held], ...] = ()
    heard: tuple[Place, ...] = ()


# -- what a cache has -----------------------------------------------------------------------------------------------


def nearest(sn: int, top: int, width: int) -> int:
    """The number that the wire calls so, and that is nearest to `top`; of two the one behind."""
    turn = 2**width
    around = range(top - turn, top + turn + 1)
    return min((one for one in around if one % turn == sn), key=lambda one: (abs(one - top), one))


def with_more(held: Held, event: Published, record: CacheRecord) -> Held:
    """Each number once; of all the highest."""
    turn = 2**record.width
    first = nearest(event.first, held[-1][0], record.width) if held else turn + event.first
    numbers = dict(held)
    for number in range(first, first + event.last - event.first + 1):
        numbers.setdefault(number, event.t_ns)
    return tuple(sorted(numbers.items())[-record.history :])


def about(held: Held, wanted: QuerySelection, width: int) -> list[int]:
    """The numbers of a queue that are wanted."""
    top = held[-1][0]
    low = 0 if wanted.first is None else nearest(wanted.first, top, width)
    high = top if wanted.last is None else nearest(wanted.last, top, width)
    found = [one for one in held if low <= one[0] <= high]
    if wanted.begin is not None or wanted.end is not None:
        begin, end = wanted.begin or 1, NOW_NS * 2 if wanted.end is None else wanted.end
        found = [one for one in found if one[1] and begin <= one[1] <= end]
    numbers = [number for number, _ in found]
    return numbers if wanted.newest is None else numbers[len(numbers) - min(wanted.newest, len(numbers)) :]


def replies(known: CacheFacts, event: CacheQuery, wanted: QuerySelection) -> Said:
    """Of each queue, by source and key, what follows one another in one reply."""
    found: list[Any] = []
    for (source, key), held in known.queues:
        if event.source not in (source, EVERY_SOURCE) or (wanted.keys is not None and key not in wanted.keys):
            continue
        numbers = about(held, wanted, known.record.width)
        for number in numbers:
            if number - 1 not in numbers:
                many = next(n for n in range(1, len(numbers) + 1) if number + n not in numbers)
                sn = number % 2**known.record.width
                found.append(Send(ASKER, Reply(N, key, source, sn, sn + many - 1)))
    return tuple(found)


# -- everybody else -------------------------------------------------------------------------------------------------


class CacheCounterpart(TableContract):
    """publishers, whose samples come by in any order and as often as they like, and somebody who asks for anything"""

    def read_said(self, known: CacheFacts, said: Said) -> Said:
        """Of a refusal what comes up to the parameter; the rest is the cache's own."""
        match said:
            case (Send(to, ReplyRefused(n, why)),):
                return (Send(to, ReplyRefused(n, why[: why.find("=") + 1])),)
        return said


def has_place(known: CacheFacts, event: Published) -> bool:
    """It needs no other queue, or there may be more."""
    return (event.source, event.key) in dict(known.queues) or len(known.queues) < known.record.places


def keep(known: CacheFacts, event: Published) -> CacheFacts:
    place = (event.source, event.key)
    queues = dict(known.queues)
    queues[place] = with_more(queues.get(place, ()), event, known.record)
    heard = tuple(sorted({*known.heard, place})) if known.phase == "crowded" else ()
    return replace(known, queues=tuple(sorted(queues.items())), heard=heard)


def let_go(known: CacheFacts, event: CrowdedOver) -> tuple[CacheFacts, Said]:
    """Who was silent makes place."""
    told = tuple(Tell(LetGo(key, source)) for (source, key), _ in known.queues if (source, key) not in known.heard)
    left = tuple(one for one in known.queues if one[0] in known.heard)
    return replace(known, phase="open", queues=left, heard=()), told


def list_rows(cast: CacheCast) -> tuple[Duty, ...]:
    """What a cache owes to these."""
    wanted = dict(cast.asked)
    # fmt: off
    return (
        Duty("keeps", "MS-42", "what comes by is kept, and nobody told",
             Published, when=lambda known, event: event not in cast.foreign and has_place(known, event), then=keep),
        Duty("passes by", "MS-40, MS-41", "what it is not there for is nothing to it",
             Published, when=lambda known, event: event in cast.foreign),
        Duty("turns away", "MS-48", "who finds no place is turned away, and its host told", Published, "",
             lambda known, event: (Tell(NotKept(event.key, event.source, event.first, event.last)),), "crowded"),
        Duty("answers", "MS-44", "who asks is sent what it asked for, of each queue in order, and then the end",
             CacheQuery, "",
             lambda known, event: (*replies(known, event, wanted[event]), Send(ASKER, ReplyEnded(N))),
             when=lambda known, event: not wanted[event].wrong),
        Duty("refuses", "MS-45", "what cannot be read is answered with what is wrong, and with nothing else",
             CacheQuery, "", lambda known, event: (Send(ASKER, ReplyRefused(N, f"{wanted[event].wrong}=")),)),
        Duty("lets go", "MS-49", "a retention after somebody found no place, who was silent since makes place",
             CrowdedOver, step=let_go),
        Duty("leaves", "MS-46", "who is withdrawn ends, and says nothing more",
             Withdraw, said=lambda known, event: (Stop(),)),
    )
    # fmt: on


# -- who is brought what, and asked ---------------------------------------------------------------------------------


def _asks(parameters: str, source: str = P, expression: str = "**", **about: Any) -> tuple[CacheQuery, QuerySelection]:
    return CacheQuery(ASKER, N, source, expression, parameters, NOW_NS), QuerySelection(**about)


def _one(key: str, source: str = P) -> Published:
    return Published(key, source, 0, 0)


K: Final = "a/b"

NUMBERED: Final = (
    _asks(""),
    _asks("", EVERY_SOURCE),
    _asks("x=1;_sn=.."),
    _asks("_sn=6", first=6, last=6),
    _asks("_sn=7..", first=7),
    _asks("_sn=..6", last=6),
    _asks("_sn=6..0", first=6, last=0),
    _asks("_sn=7..7", first=7, last=7),
    _asks("_sn=5..0;_max=2", first=5, last=0, newest=2),
    _asks("_max=1", newest=1),
    _asks("_max=2", newest=2),
    _asks("_max=3", newest=3),
    _asks("_max=0", newest=0),
    _asks("x" * 4_096),
    _asks("x" * 4_097, wrong="parameters"),
    _asks("_sn=7..6", wrong="_sn"),
    _asks("_sn=2..6", wrong="_sn"),
    _asks("_sn=3..6", first=3, last=6),
    _asks("_sn=8", wrong="_sn"),
    _asks("_sn=6..8", wrong="_sn"),
    _asks("_sn=x..", wrong="_sn"),
    _asks("_max=8", wrong="_max"),
    _asks("_sn=6;_max=1;_sn=7", wrong="_sn"),
)
"""Numbers of three bits."""

TIMED: Final = (
    _asks("_time=[2010..2020]", begin=2_010, end=2_020),
    _asks("_time=]2010..2020]", begin=2_011, end=2_020),
    _asks("_time=[2010..2020[", begin=2_010, end=2_019),
    _asks("_time=[..2010]", end=2_010),
    _asks("_time=]2010..]", begin=2_011),
    _asks("_time=[2020..[", begin=2_020),
    _asks("_time=[..2020[;_max=1", end=2_019, newest=1),
    _asks("_time=[now()..]", begin=2_020),
    _asks("_time=[now(-10ns)..now()[", begin=2_010, end=2_019),
    _asks("_time=[now(-2us)..now(-1us)]", begin=20, end=1_020),
    _asks("_time=[now(10ns)..]", begin=2_030),
    _asks("_time=[..now(+0s)]", end=2_020),
    _asks("_time=2010..2020", wrong="_time"),
    _asks("_time=[now(1)..]", wrong="_time"),
    _asks("_time=[then..]", wrong="_time"),
)

KEYS: Final = ("a/b", "a/bc", "a/bcb", "a/b/c", "b")
EXPRESSIONS: Final = {
    "**": ("a/b", "a/bc", "a/bcb", "a/b/c", "b"),
    "a/*": ("a/b", "a/bc", "a/bcb"),
    "a/**": ("a/b", "a/bc", "a/bcb", "a/b/c"),
    "a/b/**": ("a/b", "a/b/c"),
    "a/@$*": (),
    "a/$*x": (),
    "a/b$*": ("a/b", "a/bc", "a/bcb"),
    "a/$*b": ("a/b", "a/bcb"),
    "a/$*c": ("a/bc",),
    "a/b$*b": ("a/bcb",),
    "a/bc$*cb": (),
    "a/$*c$*": ("a/bc", "a/bcb"),
    "a/b$*c$*b": ("a/bcb",),
    "a/b$*b$*b": (),
    "a/b$*x$*b": (),
    "a/$*b$*b$*": ("a/bcb",),
    "a/$*c$*c$*": (),
    "a/$*c$*b$*": ("a/bcb",),
    "**/b": ("a/b", "b"),
    "**/c": ("a/b/c",),
    "a/**/c": ("a/b/c",),
    "*": ("b",),
    "a": (),
    "a/b": ("a/b",),
    "*/*/*": ("a/b/c",),
    "a/*/*/*": (),
}
"""Which of the keys an expression is about."""

VERBATIM: Final = {
    **dict.fromkeys(("a/@x", "*/@x", "**/@x", "a/**/@x"), ("a/@x",)),
    **dict.fromkeys(("**", "a/*", "a/**", "a/@$*", "a/$*x", "a/@", "@x"), ()),
}
"""The same of a key with a chunk that begins with `@`."""

CASTS: Final = {
    "asked by number": CacheCast(
        CacheRecord(history=4, width=3),
        tuple(Published(K, P, *one) for one in ((5, 5), (6, 6), (7, 7), (0, 0), (1, 1), (6, 7), (3, 7))),
        NUMBERED,
        foreign=(Published(K, ""), Published(K, P, 8, 8)),
        top=18,
        idle=("turns away", "lets go"),
    ),
    "asked by time": CacheCast(
        CacheRecord(history=2, width=3),
        (
            *(Published(K, P, number, number, t_ns=at) for number in (6, 7, 1) for at in (0, 2_010, 2_020)),
            Published(K, P, 6, 7, t_ns=2_011),
            Published(K, P, 7, 7, t_ns=2_019),
        ),
        TIMED,
        top=18,
        idle=("passes by", "turns away", "lets go"),
    ),
    "asked by key": CacheCast(
        CacheRecord(width=3),
        tuple(_one(key) for key in KEYS),
        tuple(_asks("", EVERY_SOURCE, one, keys=keys) for one, keys in EXPRESSIONS.items()),
        idle=("passes by", "turns away", "refuses", "lets go"),
    ),
    "asked verbatim": CacheCast(
        CacheRecord(expression="**/@x", width=3),
        (_one("a/@x"),),
        tuple(_asks("", EVERY_SOURCE, one, keys=keys) for one, keys in VERBATIM.items()),
        foreign=(_one("a/x"), _one("a/@y"), _one("@z/@x")),
        idle=("turns away", "refuses", "lets go"),
    ),
    "asked by source": CacheCast(
        CacheRecord(expression="a/*", width=3),
        (_one("a/b"), _one("a/c"), _one("a/b", Q)),
        (_asks("", P), _asks("", Q), _asks("", R), _asks("", EVERY_SOURCE), _asks("", Q, "a/c", keys=("a/c",))),
        foreign=(_one("b"), _one("a/b/c", Q), Published("a/b", "")),
        idle=("turns away", "refuses", "lets go"),
    ),
    "beside its publisher": CacheCast(
        CacheRecord(prefix=P, local=True, width=3),
        (Published(K, P, 0, 0, local=True), Published(K, P, 1, 2, local=True)),
        (_asks("", P), _asks("", Q), _asks("", EVERY_SOURCE)),
        foreign=(_one(K), Published(K, Q, 0, 0, local=True)),
        idle=("turns away", "refuses", "lets go"),
    ),
    "turns away": CacheCast(
        CacheRecord(places=2, width=3, retention_ms=RETENTION * TICK_NS // 1_000_000),
        tuple(Published(key, source, 3, 4) for source, key in ((P, K), (P, "b"), (Q, K))),
        (_asks("", EVERY_SOURCE), _asks("_sn=x", wrong="_sn")),
        foreign=(Published(K, ""), Published(K, Q, 8, 8)),
    ),
}
ABOUT: Final = {
    "asked by number": "a cache of four samples, which come in any order and come round, is asked for numbers",
    "asked by time": "a cache of two samples, of some of which nobody says when, is asked for times",
    "asked by key": "a cache under all keys is asked for key expressions",
    "asked verbatim": "a cache under a key with a chunk that no wildcard is about",
    "asked by source": "a cache of some keys, of any source, is asked for sources",
    "beside its publisher": "a cache of one publisher, beside which others publish",
    "turns away": "a cache of two queues: a third finds no place until the silent ones are let go",
}


def build(name: str) -> System:
    """A cache, and everybody around it."""
    cast = CASTS[name]
    machine = Machine(
        CACHE,
        cast.record,
        timing=Timing(TICK_NS, ("crowded",)),
        kept=lambda record: replace(record, not_kept=0),
        bound=lambda record: all(queue.top <= cast.top for queue in record.queues.values()),
        says_so=False,
    )
    counterpart = CacheCounterpart(
        list_rows(cast),
        clocks=(PhaseClock(CrowdedOver, "crowded", RETENTION, "lets go"),),
        words=(*cast.brought, *cast.foreign, *dict(cast.asked), Withdraw()),
        facts=CacheFacts("open", record=cast.record),
        idle=cast.idle,
    )
    return contract(name, ABOUT[name], machine, counterpart, TickClock(TICK_NS))
