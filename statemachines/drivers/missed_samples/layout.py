"""Layout: where publishers, caches and tokens are found in zenoh's key space, and how samples say their number.

`advanced` is that of zenoh's own advanced publishers and subscribers, with numbers of 32 bits in zenoh's source
information.  `plain` is the source document's, with numbers of 64 bits in an attachment; only our own parties read it.

Declaration: what was declared at a session, undone in the opposite order.

An entity of zenoh that is left declared calls back into an interpreter that ends, which hangs.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import struct
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, Final, TypeVar

import zenoh

from statemachines.drivers.missed_samples.attachment import BeatAttachment, SampleAttachment, decode, encode
from statemachines.drivers.opening import finish_in_thread
from statemachines.kernel import ConfigurationError
from statemachines.missed_samples import keys
from statemachines.missed_samples.keys import BadKey, KeyPlace
from statemachines.missed_samples.message import EVERY_SOURCE
from statemachines.wire import quote_for_log

Numbered = tuple[str, int]
"""(source, number on the wire)"""
Read = tuple[str, int, bytes | None]
"""What a sample says: its source ("": none), its number on the wire, the application's attachment."""

_U32: Final = struct.Struct("<I")

read_advanced = lru_cache(1_000)(keys.read_advanced)

NAMES_MAX: Final = 10_000
"""So many ids of sources are kept as names, at most."""


def attachment_of(sample: zenoh.Sample) -> bytes | None:
    """The bytes of the attachment (None: there is none)."""
    found = sample.attachment
    return None if found is None else found.to_bytes()


class SourceNames:
    """The ids of sources, by zenoh's: made once, since that takes longer than all else that is done with a sample.

    zenoh's ids of entities are never equal to each other; what they consist of is.  Samples that come one after the
    other are mostly of the same source, and to look at the last one is quicker than to look in a dictionary.
    """

    def __init__(self) -> None:
        self._last: tuple[zenoh.ZenohId | None, int, str] = (None, 0, "")
        self._names: dict[tuple[zenoh.ZenohId, int], str] = {}

    def __len__(self) -> int:
        return len(self._names)

    def of(self, publisher: zenoh.EntityGlobalId) -> str:
        """The name of its source."""
        known, number, name = self._last  # in one piece, whichever thread reads it
        eid, zid = publisher.eid, publisher.zid
        if eid == number and zid == known:
            return name
        found = self._names.get((zid, eid))
        if found is None:
            found = keys.make_source_id(str(zid), eid)
            if len(self._names) >= NAMES_MAX:
                self._names.clear()
            self._names[zid, eid] = found
        self._last = zid, eid, found
        return found


_name_of = SourceNames().of


def read_source(info: zenoh.SourceInfo) -> Numbered:
    """What zenoh's source information says."""
    return _name_of(info.source_id), info.source_sn


class KeyLayout:
    """As zenoh's advanced publishers: `<key expression>/@adv/pub/<zid>/<eid>/_`.  What is read raises `BadKey` or
    `MalformedAttachment` where it cannot be.  `has_zenohs_ids`: no two publishers can have one."""

    name = "advanced"
    width = 32
    has_zenohs_ids = True

    def source(self, publisher: zenoh.Publisher, given: str, goes_on: bool = True) -> str:
        """The id of a publisher; `given`: what the application calls it ("": nothing); `goes_on`: with the numbers of
        the publisher that had it last."""
        if given:
            rule = "is the session's and cannot be chosen in the advanced layout; leave it out, or take layout='plain'"
            raise ConfigurationError("source", given, rule)
        return keys.make_source_id(str(publisher.id.zid), publisher.id.eid)

    def own_key(self, source: str, expression: str) -> str:
        """The key of a publisher: its cache, its heartbeats, its token."""
        return keys.make_source_key(source, expression)

    def query_key(self, source: str, expression: str) -> str:
        """Where samples of a source, or of `EVERY_SOURCE`, are asked for; there a cache of all sources answers."""
        return keys.make_query_key(source, expression)

    def watch_key(self, expression: str) -> str:
        """Where heartbeats and tokens of all sources are."""
        return keys.make_heartbeat_key(expression)

    def read_key(self, key: str) -> KeyPlace:
        """Whose key it is: of a query, a heartbeat or a token."""
        return read_advanced(key)

    def stamp(self, publisher: zenoh.EntityGlobalId, source: str, sn: int, attachment: bytes | None) -> dict[str, Any]:
        """The arguments of `put` that number a sample of the entity `publisher`."""
        return {"source_info": zenoh.SourceInfo(publisher, sn), "attachment": attachment}

    def read_sample(self, sample: zenoh.Sample) -> Read | None:
        """What a sample says that came by itself; None: it is no sample."""
        info, attachment = sample.source_info, sample.attachment  # every sample comes by here: no call too many
        data = None if attachment is None else attachment.to_bytes()
        return ("", -1, data) if info is None else (_name_of(info.source_id), info.source_sn, data)

    def beat(self, source: str, last: int) -> dict[str, Any]:
        """The arguments of `put` that make a heartbeat."""
        return {"payload": _U32.pack(last)}

    def read_beat(self, sample: zenoh.Sample) -> Numbered | None:
        """What a heartbeat says (None: it is none)."""
        data = sample.payload
        if len(data) != _U32.size:
            raise BadKey("heartbeat of", str(sample.key_expr), f"{_U32.size} bytes, and not {len(data)}")
        return read_advanced(str(sample.key_expr)).source, _U32.unpack(data.to_bytes())[0]


class PlainLayout(KeyLayout):
    """As the source document: `<source id>/<key expression>`.  A publisher that begins anew under an id is
    `<id>~<life>`."""

    name = "plain"
    width = 64
    has_zenohs_ids = False

    def source(self, publisher: zenoh.Publisher, given: str, goes_on: bool = True) -> str:
        source = given or f"{publisher.id.zid}-{publisher.id.eid}"
        keys.plain_key(source, "x")
        return f"{source}~{secrets.token_hex(4)}" if given and not goes_on else source

    def query_key(self, source: str, expression: str) -> str:
        return keys.plain_key(source, expression)

    own_key = query_key

    def watch_key(self, expression: str) -> str:
        return keys.plain_key(EVERY_SOURCE, expression)

    def read_key(self, key: str) -> KeyPlace:
        return keys.read_plain(key)

    def stamp(self, publisher: zenoh.EntityGlobalId, source: str, sn: int, attachment: bytes | None) -> dict[str, Any]:
        return {"attachment": encode(SampleAttachment(source, sn, attachment))}

    def read_sample(self, sample: zenoh.Sample) -> Read | None:
        data = attachment_of(sample)
        said = None if data is None else decode(data)
        if isinstance(said, BeatAttachment):
            return None  # where the application's keys have wild cards in front
        if not isinstance(said, SampleAttachment):
            return "", -1, data
        keys.plain_key(said.source, "x")
        return said.source, said.sn, said.attachment

    def beat(self, source: str, last: int) -> dict[str, Any]:
        return {"payload": b"", "attachment": encode(BeatAttachment(source, last))}

    def read_beat(self, sample: zenoh.Sample) -> Numbered | None:
        data = attachment_of(sample)
        said = None if data is None else decode(data)
        if not isinstance(said, BeatAttachment):
            return None  # somebody's sample, under a key that looks like one of ours
        keys.plain_key(said.source, "x")
        return said.source, said.last


PLAIN: Final = PlainLayout()
_LAYOUTS: Final[dict[str, KeyLayout]] = {"advanced": KeyLayout(), "plain": PLAIN}


def layout_of(name: str) -> KeyLayout:
    """The layout of this name; raises `ConfigurationError`."""
    if name not in _LAYOUTS:
        raise ConfigurationError("layout", name, f"one of {', '.join(_LAYOUTS)}")
    return _LAYOUTS[name]


logger = logging.getLogger("gapless")

E = TypeVar("E")


class Declarations:
    """`add` what has `undeclare`, `on_close` what is to be awaited; `close` undoes all, and can be called again.

    What a thread declares while, or after, all is undone (whoever waited for it was cancelled) is undeclared at once.
    """

    def __init__(self) -> None:
        self._acts: list[Callable[[], Awaitable[Any]]] = []
        self._is_closed = False

    def add(self, entity: E) -> E:
        """Itself."""
        if self._is_closed:
            undeclare(entity)
        else:
            self._acts.append(lambda: finish_in_thread(lambda: undeclare(entity)))
        return entity

    def on_close(self, act: Callable[[], Awaitable[Any]]) -> None:
        """Call it when everything that was declared later is undone."""
        self._acts.append(act)

    async def close(self) -> None:
        """All of it, whatever of it fails, and though it is cancelled; then raise what failed first."""
        failed: BaseException | None = None
        self._is_closed = True
        while self._acts:
            try:
                await self._acts.pop()()
            except (Exception, asyncio.CancelledError) as error:
                failed = failed or error
        if failed is not None:
            raise failed


def undeclare(entity: Any) -> None:
    """Also where its session is closed."""
    try:
        entity.undeclare()
    except zenoh.ZError as error:  # the session is closed: then it is undeclared
        logger.info("not undeclared: %s", quote_for_log(str(error)))
