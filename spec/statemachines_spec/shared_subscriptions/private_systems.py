"""Private systems: closed systems in which an application reads by a private subscription, which shares with nobody.

The application reads what is installed, message by message, and keeps the progress that it is told; the store rotates
meanwhile, drops what is old, and fails a listing.  It may say once more what it had read.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Call, Event, Map, in_order, keys_in_order
from statemachines.shared_subscriptions.borrower import Destroyed, OnDisconnect, OnUnsubscribe, Start
from statemachines.shared_subscriptions.message import END_OF_STREAM
from statemachines.shared_subscriptions.private_subscription import PRIVATE, READING, PrivateRecord, ReadTo
from statemachines.shared_subscriptions.stream import Install, StreamProgress, Uninstall
from statemachines.shared_subscriptions.stream_store import StreamStore, rank_of
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.fsm_actor import FsmActor
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Always, Eventually, Sometimes, Stepwise, View
from statemachines_spec.explorer.system import System, at_most
from statemachines_spec.shared_subscriptions.stores import REFUSED, Fail, FailingStore, StoreLocal, script, streams

READER, APPLICATION = "reader", "application"
OURS: Final = (READER, 0)
"""Owner and grant of what is told of the subscription: a session looks up both."""
TOPIC: Final = "a"
"""What the filter of the subscription matches; the store has another topic, too."""


class Next(Call, frozen=True, gc=False):
    """The application reads the next message of a stream, or finds its end."""

    stream: str


class Again(Call, frozen=True, gc=False):
    """It says of a stream what it had said long before."""

    stream: str


class Begin(Call, frozen=True, gc=False):
    """It subscribes."""


class Leave(Call, frozen=True, gc=False):
    """It unsubscribes."""


class Go(Call, frozen=True, gc=False):
    """It goes away."""


class ApplicationPositions(msgspec.Struct, frozen=True, gc=False):
    """`installed`: stream -> the next offset to read; `kept`: the progress that it was told; `begun`: it has
    subscribed; `leaving`: it wants no more; `gone`: it was told that the subscription has ended."""

    installed: Map[str, int] = Map()
    kept: Map[str, int] = Map()
    begun: bool = False
    leaving: bool = False
    gone: bool = False


class Application(Actor):
    """`knows`: the progress that it begins with.  Every stream has one message; those of the first generation end."""

    def __init__(self, knows: Map[str, int]) -> None:
        super().__init__(APPLICATION)
        self.knows = knows

    def initial(self) -> ApplicationPositions:
        return ApplicationPositions(kept=self.knows)

    def inputs(self, local: ApplicationPositions) -> tuple[Any, ...]:
        if local.gone:
            return ()
        if not local.begun:
            return (Begin(),)
        unread = (one for one, at in in_order(local.installed) if at == 0 or (at == 1 and not rank_of(one)[1]))
        leaves = () if local.leaving else (Leave(), Go())
        return (*map(Next, unread), *map(Again, keys_in_order(local.kept)), *leaves)

    def react(self, local: ApplicationPositions, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case Next(stream):
                at = 1 if local.installed[stream] == 0 else END_OF_STREAM
                after = replace(local, installed=local.installed.set(stream, at))
                return Reaction(after, (), (self._says(stream, at),))
            case Again(stream):
                return Reaction(local, (), (self._says(stream, 0),))
            case Begin():
                return Reaction(replace(local, begun=True), (), (Envelope(self.name, READER, Start()),))
            case Leave() | Go() as how:
                call = OnUnsubscribe() if isinstance(how, Leave) else OnDisconnect()
                return Reaction(replace(local, leaving=True), (), (Envelope(self.name, READER, call),))
            case Install(owner, stream, grant, progress) if (owner, grant) == OURS:
                return Reaction(replace(local, installed=local.installed.set(stream, progress)))
            case Uninstall(owner, stream, grant) if (owner, grant) == OURS:
                return Reaction(replace(local, installed=local.installed.delete(stream)))
            case ReadTo(owner, stream, progress) if owner == READER:
                return Reaction(replace(local, kept=local.kept.set(stream, progress)))
            case Destroyed(owner, recreate, epoch) if (owner, recreate, epoch) == (READER, False, 0):
                return Reaction(replace(local, installed=Map(), gone=True))
        return Reaction(local)  # what is not of its subscription

    def _says(self, stream: str, progress: int) -> Envelope:
        return Envelope(self.name, READER, StreamProgress(stream, 0, progress))


def build(name: str, filter_of: str, knows: Map[str, int], lines: tuple[str, ...], failures: int) -> System:
    """One subscription, its application, and a store of two topics that goes on by these lines."""
    reader = FsmActor(
        READER,
        PRIVATE,
        PrivateRecord(READER, filter_of, 0, progress=knows),
        tells=dict.fromkeys((Install, Uninstall, ReadTo, Destroyed), APPLICATION),
        canonical=lambda record: replace(record, list_n=0) if record.status is READING else record,
    )
    application = Application(knows)
    held = streams((TOPIC, "b"), 1, ended=True)
    store = FailingStore(StreamStore(1), hows=(REFUSED,), at_once=False, state=held, script=script(lines), page=1)
    rotates = "rotate" in lines and bool(filter_of)
    return System(
        name,
        ABOUT[name],
        (reader, application, store),
        Network(1),
        (
            Always("S9", "a later generation is read only when the one before is read to its end, or dropped",
                   (View(APPLICATION, 2, _too_soon), View(store.name, 2, _has_first)), lambda *both: not all(both)),
            Always("S12", "no other topic is read", (View(APPLICATION, 2, _only_ours),), bool),
            Always("S8", "what is read to its end is read no more", (View(APPLICATION, 2, _ended_is_dropped),), bool),
            Always("L7", "who leaves is told at once that the subscription has ended",
                   (View(APPLICATION, 2, lambda local: int(local.gone or not local.leaving)),), bool),
            Stepwise("S7", "the progress that an application is told grows", _grows),
            Stepwise("S13", "a stream is read from where it is known to be read to", _begins_where_known),
            Sometimes("reads", "a stream is read to its end", (View(APPLICATION, 2, _has_read_first),), bool),
            Sometimes("ends", "the subscription ends", (View(APPLICATION, 2, lambda local: int(local.gone)),), bool),
            *((Sometimes("later", "a later generation is read",
                         (View(APPLICATION, 2, lambda local: int(local.kept.get(SECOND, 0) == 1)),), bool),)
              if rotates else ()),
        ),
        (
            at_most("unsubscribe or disconnect", 1, Leave, Go),
            at_most("request that the store fails", failures, Fail),
        ),
        bounds={"streams": "a message each; those of the first generation end"},
        obligations=(
            Eventually("L5", "what the store has is read", (View(APPLICATION, 4, _unread), View(store.name, 4, _has)),
                       lambda unread, has: bool(unread & has)),
            Eventually("S9 vanished", "what the store dropped is dropped",
                       (View(APPLICATION, 2, _reads_first), View(store.name, 2, _has_first)),
                       lambda reads, has: bool(reads and not has)),
        ),
    )  # fmt: skip


FIRST, SECOND = f"0.0/{TOPIC}", f"0.1/{TOPIC}"


def _has_first(local: StoreLocal) -> int:
    return int(FIRST in local.state.by_id)


def _has(local: StoreLocal) -> int:
    return _has_first(local) + 2 * (SECOND in local.state.by_id)


def _unread(local: ApplicationPositions) -> int:
    if local.gone:
        return 0
    return int(local.kept.get(FIRST, 0) != END_OF_STREAM) + 2 * (local.kept.get(SECOND, 0) < 1)


def _reads_first(local: ApplicationPositions) -> int:
    return int(FIRST in local.installed)


def _too_soon(local: ApplicationPositions) -> int:
    return int(SECOND in local.installed and local.kept.get(FIRST) != END_OF_STREAM)


def _only_ours(local: ApplicationPositions) -> int:
    return int(all(one in (FIRST, SECOND) for one in keys_in_order(local.installed)))


def _ended_is_dropped(local: ApplicationPositions) -> int:
    return int(all(local.kept.get(one, 0) != END_OF_STREAM for one in keys_in_order(local.installed)))


def _has_read_first(local: ApplicationPositions) -> int:
    return int(local.kept.get(FIRST) == END_OF_STREAM)


def _grows(actor: str, before: Any, event: Event, after: Any) -> bool:
    if actor != APPLICATION:
        return True
    return all(after.kept[one] >= at for one, at in in_order(before.kept))


def _begins_where_known(actor: str, before: Any, event: Event, after: Any) -> bool:
    if actor != APPLICATION or not isinstance(event, Install):
        return True
    return event.stream not in before.installed and before.kept.get(event.stream) == event.progress


ABOUT: Final = {
    "alone": "a private subscription reads what matches its filter, while the store rotates and fails a listing",
    "alone-dropped": "the same while the store drops the first generation",
    "alone-known": "a private subscription without a filter reads what its application knows",
}
LINES: Final = {"alone": ("rotate", TOPIC), "alone-dropped": ("rotate", TOPIC, "drop"), "alone-known": ()}


def system(name: str, size: str, variant: str, without: tuple[str, ...]) -> System:
    """The system of that name; variants and deadline orders are about others."""
    arguments: dict[str, Any] = {"name": name, "size": size, "variant": variant, "without": without}
    knows = Map({FIRST: 0}) if name == "alone-known" else Map()
    made = build(name, "" if knows else TOPIC, knows, LINES[name], 1 if size == "small" else 2)
    return replace(made, origin=(f"{__name__}:system", arguments))
