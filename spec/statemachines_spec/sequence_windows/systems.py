"""Systems: publishers and a receiver that forget, begin anew, lose and repeat; small ones that end.

Convergence: an operator, who tells all nodes that the network has converged, at any time.

Advisory systems: systems of a client that is advised of its losses, and of nothing else.

Window turns: a window by itself, that is asked at every instant whether it turns.

Counterexamples: where a rule of the source breaks; the three limits; and what JOIN needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, Fsm
from statemachines.sequence_windows.late_join import Converged
from statemachines.sequence_windows.loss_notifier import LISTED, LOST_MAX, PERIOD_NS, Lost
from statemachines.sequence_windows.properties.names import CONTENT, NOTIFY, THROTTLE
from statemachines.sequence_windows.rotation import ROTATION, RotationRecord, Tick, Window
from statemachines.sequence_windows.sequence import BASE_MAX, FRAME_MAX, number_of, start_of
from statemachines.sequence_windows.subscriber_window import Subscribe, Unsubscribe
from statemachines_spec.explorer.actor import Actor, At, Envelope, Reaction, Restart, Timing, Watch
from statemachines_spec.explorer.clock import Clock
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Always, Property, Sometimes, View
from statemachines_spec.explorer.system import Budget, System, at_most
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.sequence_windows.client import PROMPT, SECOND, AdvisedClient
from statemachines_spec.sequence_windows.inbox import inbox
from statemachines_spec.sequence_windows.machine_step import step
from statemachines_spec.sequence_windows.numbering import NumberFault
from statemachines_spec.sequence_windows.publisher import RECEIVER, Rotate, Send, WindowPublisher
from statemachines_spec.sequence_windows.receiver import PROMISES, UNORDERED, WindowReceiver, WindowViolation

WINDOW = Window(100)
INSTANTS = (0, WINDOW.time_ns, WINDOW.time_ns + 1, 2 * WINDOW.time_ns + 1, 2 * WINDOW.time_ns + 2)
"""Each just before a window turns, or just when it does."""


class Look(Event, frozen=True, gc=False):
    """The host asks; so many bytes are kept."""

    kept: int


class TurnHostLocal(msgspec.Struct, frozen=True, gc=False):
    """`turned_ns`: when the window turned last; `turns`: how often; `early`: it turned when it should not; `late`: it
    did not when it should."""

    rotation: RotationRecord
    now_ns: int = 0
    turned_ns: int = 0
    turns: int = 0
    early: bool = False
    late: bool = False


class WindowHost(Actor):
    """A host with a window of `WINDOW`."""

    keeps_time = True

    def __init__(self) -> None:
        super().__init__("host")

    @property
    def machines(self) -> tuple[Fsm[Any], ...]:
        return (ROTATION,)

    def initial(self) -> TurnHostLocal:
        return TurnHostLocal(RotationRecord(WINDOW, 0))

    def inputs(self, local: TurnHostLocal) -> tuple[Any, ...]:
        return (Look(WINDOW.size), Look(WINDOW.size + 1))

    def react(self, local: TurnHostLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        if isinstance(event, At):
            return Reaction(replace(local, now_ns=event.now_ns))
        rotation, told = step(ROTATION, local.rotation, Tick(local.now_ns, event.kept), self.name, watch)
        turns = len(told)
        passed = local.now_ns >= local.turned_ns + WINDOW.time_ns + 1
        due = int(passed and event.kept > WINDOW.size)
        return Reaction(
            TurnHostLocal(
                rotation,
                local.now_ns,
                local.now_ns if turns else local.turned_ns,
                local.turns + turns,
                local.early or turns > due,
                local.late or turns < due,
            )
        )

    def describe(self, local: TurnHostLocal) -> str:
        return f"at {local.now_ns} ns; has turned {local.turns} times"

    def bounds(self) -> dict[str, str]:
        return {"window": f"{WINDOW.size} bytes, {WINDOW.time_ns} ns"}

    # -- reading it ---------------------------------------------------------------------------------------------

    def is_wrong(self) -> View:
        """Whether TURN is broken."""
        return View(self.name, 2, lambda local: int(local.early or local.late))

    def has_turned(self, times: int) -> View:
        """Whether the window has turned so often."""
        return View(self.name, 2, lambda local: int(local.turns >= times))


def turning(about: str) -> System:
    """A window and a clock that does not step."""
    host = WindowHost()
    text = "a window turns when its time has passed and too much is kept, and at no other time"
    return System(
        "turning",
        about,
        (host, Clock(*INSTANTS)),
        Network(1, lossy=False, duplicating=False),
        properties=(
            Always("TURN", text, (host.is_wrong(),), lambda wrong: not wrong),
            Sometimes("it turns twice", "", (host.has_turned(2),), bool),
        ),
    )


class Converge(Event, frozen=True, gc=False):
    """The network has converged."""


class OperatorLocal(msgspec.Struct, frozen=True, gc=False):
    """How often it `told` them; `place` of the clock."""

    told: int = 0
    place: int = 0


class ConvergenceOperator(Actor):
    """`walls`: what its clock says at each instant; `nodes` that are told, no more than so many `times`."""

    keeps_time = True

    def __init__(self, walls: tuple[int, ...], nodes: tuple[str, ...], times: int) -> None:
        super().__init__("operator")
        self.walls = walls
        self.nodes = nodes
        self.times = times

    def initial(self) -> OperatorLocal:
        return OperatorLocal()

    def inputs(self, local: OperatorLocal) -> tuple[Any, ...]:
        return (Converge(),) if local.told < self.times else ()

    def react(self, local: OperatorLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        if isinstance(envelope.event, At):
            return Reaction(replace(local, place=envelope.event.now_ns))
        told = Converged(self.walls[local.place])
        calls = tuple(Envelope(self.name, node, told) for node in self.nodes)
        return Reaction(replace(local, told=local.told + 1), (), calls)

    def describe(self, local: OperatorLocal) -> str:
        return f"has told {local.told} times"


MANY = tuple((f"s{number}", 1) for number in range(LISTED + 2))
"""More subjects than an advisory lists."""


def advisories(about: str) -> System:
    """A second may be over at any moment."""
    return _system("advisories", about, AdvisedClient(6))


def great_advisories(about: str) -> System:
    """What is lost does not fit into an advisory, or its size is unknown."""
    losses = (Lost((("a", LOST_MAX),)), Lost((("a", 1), ("b", 2))), Lost((("c", 0),)))
    few = Budget("losses", 3, lambda actor, event: isinstance(event, Lost))
    return replace(_system("great-advisories", about, AdvisedClient(2 * LOST_MAX + 3, losses)), budgets=(few,))


def many_advisories(about: str) -> System:
    """Of more subjects than are listed."""
    losses = (Lost(MANY), Lost((MANY[-1],)))
    return _system("many-advisories", about, AdvisedClient(len(MANY) + 2, losses))


def make_timed_system(about: str) -> System:
    """A second has a few ticks."""
    timing = Timing(PERIOD_NS // SECOND, ("second",))
    client = AdvisedClient(6, timing=timing)
    text = "who was not advised for more than a second is advised at once"
    prompt = Always(PROMPT, text, (client.is_broken(PROMPT),), _not)
    return _system("timed-advisories", about, client, (prompt,), (TickClock(timing.tick_ns),))


def _system(
    name: str, about: str, client: AdvisedClient, more: tuple[Property, ...] = (), others: tuple[Actor, ...] = ()
) -> System:
    text = "advisories are a second apart, and their sum is what was lost"
    return System(
        name,
        about,
        (client, *others),
        Network(1, lossy=False, duplicating=False),
        properties=(
            Always(THROTTLE, text, (client.is_broken(THROTTLE),), _not),
            Always(NOTIFY, "what waits is told when the second is over", (client.is_broken(NOTIFY),), _not),
            Always(CONTENT, "an advisory says what was lost", (client.is_broken(CONTENT),), _not),
            *more,
            Sometimes("all is told", "", (client.has_told(),), bool),
        ),
    )


def _not(value: int) -> bool:
    return not value


STEADY = tuple(start_of(frame) + 5 for frame in (2, 3, 4))
"""A clock that goes on, a frame an instant."""
STILL = (start_of(2) + 5, start_of(2) + 6)
"""One that is looked at within one frame: nothing but lives tells those of a publisher apart."""
BACK = tuple(start_of(frame) + 5 for frame in (4, 2, 4))
"""One that steps back by two frames."""
AHEAD = tuple(start_of(frame) + 5 for frame in (4, 5, 6))
SLOW = tuple(start_of(frame) + 5 for frame in (2, 5, 6))
"""Two of which one is behind by two frames at first."""
NEAR = tuple(start_of(frame) + 5 for frame in (2, 6, 3))
NEARER = tuple(start_of(frame) + 5 for frame in (3, 6, 6))
FURTHER = tuple(start_of(frame) + 5 for frame in (4, 6, 6))
"""Three of which the second and third are ahead of the first, by one frame and by two."""
EARLY = (0, start_of(1) + 5, start_of(2) + 5)
"""One that says 1970 at first."""
LAST = (start_of(FRAME_MAX - 1), start_of(FRAME_MAX), start_of(FRAME_MAX + 1))
"""One at the end of all frames."""
BEYOND = tuple(start_of(frame) for frame in (FRAME_MAX - 1, FRAME_MAX + 1, FRAME_MAX))
LASTING = tuple(start_of(frame) for frame in (FRAME_MAX - 1, FRAME_MAX, FRAME_MAX))
"""Two of which one steps beyond it, and back."""


class WindowSetting(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds a system.  `walls`: clocks of the publishers; `ours`: of the receiver and the operator (none: as the
    first publisher's); `messages` of each publisher; `flips` of the receiver's window, `own_flips` of the publishers';
    `begin`: the last number that every subject has at first; `converges`: how often the operator says so; `careful`:
    then nothing is lost any more; `comes`: how often the receiver subscribes (0: it does from the beginning); `shows`:
    verdicts that must happen; `ranges`: messages may come together with the one before; so many are `forged`, and
    so many `invented`; `refused`: that nothing is numbered must happen, too; `places` that the receiver has for
    publishers (0: for all)."""

    walls: tuple[tuple[int, ...], ...] = (STEADY,)
    ours: tuple[int, ...] = ()
    subjects: tuple[str, ...] = ("s",)
    messages: int = 4
    lost: int = 1
    copies: bool = False
    flips: int = 0
    own_flips: int = 0
    lives: int = 1
    begin: int = 0
    converges: int = 0
    careful: bool = False
    comes: int = 0
    shows: tuple[str, ...] = ()
    in_flight: int = 1
    ordered: bool = True
    ranges: bool = False
    forged: int = 0
    invented: int = 0
    refused: bool = False
    places: int = 0


VARIANTS = {
    "settled": "as it is shipped",
    "as_written": "the source: a receiver has one sequence for all publishers of a subject",
}

SYSTEMS: dict[str, tuple[str, WindowSetting]] = {
    "rotation": (
        "a publisher whose clock steps back and a receiver; both may forget at any moment",
        WindowSetting(walls=(BACK,), messages=4, lost=2, flips=2, own_flips=2, shows=("skip", "cycle", "first")),
    ),
    "two-subjects": (
        "a publisher of two subjects, whose clock steps back and which forgets at any moment",
        WindowSetting(walls=(BACK,), subjects=("s", "t"), messages=4, own_flips=3, shows=("cycle", "skip")),
    ),
    "two-publishers": (
        "two publishers of one subject, and a receiver that may forget",
        WindowSetting(walls=(STEADY, BACK), messages=3, flips=2, lost=2, shows=("next", "skip")),
    ),
    "copies": (
        "a publisher that begins anew, under another id, first in 1970, and a network that repeats",
        WindowSetting(walls=(EARLY,), messages=4, copies=True, lives=2, in_flight=2, shows=("repeat", "skip")),
    ),
    "convergence": (
        "a network that loses until it has converged, and a receiver that comes late",
        WindowSetting(
            messages=4, lost=2, converges=1, careful=True, comes=2, in_flight=2, shows=("skip", "not_subscribed")
        ),
    ),
    "lossy-convergence": (
        "a network that converges, and loses all the same",
        WindowSetting(walls=(AHEAD,), ours=SLOW, messages=4, lost=2, converges=2, shows=("skip unknown", "skip")),
    ),
    "overtaking": (
        "a network in which messages overtake each other, and come again: neither losses nor joins are judged",
        WindowSetting(messages=3, lost=1, copies=True, in_flight=3, ordered=False, shows=("repeat", "skip")),
    ),
    "used-up": (
        "a publisher whose bases are nearly used up, and whose clock steps back",
        WindowSetting(
            walls=(BACK,), messages=4, lost=2, begin=number_of(4, BASE_MAX - 2), flips=1, shows=("skip", "next")
        ),
    ),
    "the-end": (
        "a publisher at the end of all frames",
        WindowSetting(
            walls=(LAST,),
            messages=4,
            lost=1,
            own_flips=2,
            begin=number_of(FRAME_MAX, BASE_MAX - 2),
            shows=("next", "first unknown"),
            refused=True,
        ),
    ),
    "last-frame": (
        "a publisher before the last frame of all, whose clock steps beyond it, and back",
        WindowSetting(
            walls=(BEYOND,),
            ours=LASTING,
            messages=3,
            lost=1,
            own_flips=2,
            converges=1,
            shows=("next", "first"),
            refused=True,
        ),
    ),
    "aging": (
        "a receiver that may forget, and to which messages come again, alone or with those that follow",
        WindowSetting(walls=(STEADY,), lost=1, copies=True, flips=2, ranges=True, shows=("repeat, next", "skip")),
    ),
    "joins": (
        "two publishers that are ahead of a receiver, by a frame and by two, and a network that converges",
        WindowSetting(walls=(FURTHER, NEARER), ours=NEAR, messages=1, lost=0, converges=2, shows=("first",)),
    ),
    "crowd": (
        "two publishers of a subject, which may begin anew, and a receiver with places for two",
        WindowSetting(
            walls=(STILL, STILL),
            messages=3,
            lost=1,
            flips=0,
            lives=3,
            places=2,
            shows=("first", "first unknown", "skip", "next"),
        ),
    ),
    "forged": (
        "a publisher that forgets, and messages whose TIME or CHAIN cannot be",
        WindowSetting(walls=(STEADY,), lost=0, own_flips=2, forged=2, shows=("cycle",)),
    ),
    "jumps": (
        "a publisher that forgets, and messages far ahead that nobody sent",
        WindowSetting(walls=(STEADY,), messages=3, lost=1, own_flips=2, invented=2, shows=("skip", "cycle", "next")),
    ),
    "displaced": (
        "three publishers in the middle of their streams, and a receiver with a place for one, which may forget",
        WindowSetting(
            walls=(STILL, STILL, STILL),
            messages=2,
            lost=0,
            flips=2,
            begin=number_of(2, 5),
            places=1,
            shows=("first", "first unknown", "next"),
        ),
    ),
}
"""Name -> (about, bounds)."""

ALONE: dict[str, tuple[str, Callable[[str], System]]] = {
    "advisories": ("a client that is advised of its losses", advisories),
    "great-advisories": ("a client that loses more than an advisory says, or nobody knows how much", great_advisories),
    "many-advisories": ("a client that loses messages of more subjects than an advisory lists", many_advisories),
    "timed-advisories": ("a client that is advised of its losses, by the clock", make_timed_system),
    "inbox": ("a peer that writes to one other alone, over a network that loses, repeats and reorders", inbox),
    "turning": ("a window that turns by the clock", turning),
}
"""Name -> (about, how it is made)."""

ABOUT = {name: about for name, (about, _) in (*SYSTEMS.items(), *ALONE.items())}


def system(name: str, size: str = "small", variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """The system called so."""
    if name in ALONE:
        about, make = ALONE[name]
        return make(about)
    about, setting = SYSTEMS[name]
    return build(name, about, setting, variant)


def build(name: str, about: str, setting: WindowSetting, variant: str = "settled") -> System:
    """The system with these bounds."""
    ours = setting.ours or setting.walls[0]
    publishers = [
        WindowPublisher(
            f"publisher-{n}",
            walls=walls,
            subjects=setting.subjects,
            messages=setting.messages,
            lives=setting.lives,
            rotates=bool(setting.own_flips),
            begin=setting.begin,
            careful=setting.careful,
            ranges=setting.ranges,
            forges=setting.forged > 0,
            invents=setting.invented > 0,
        )
        for n, walls in enumerate(setting.walls, 1)
    ]
    receiver = WindowReceiver(
        walls=ours,
        subjects=setting.subjects,
        rotates=bool(setting.flips),
        late=bool(setting.comes),
        leaves=setting.comes > 1,
        places=setting.places,
        invents=setting.invented > 0,
        by_publisher=variant != "as_written",
        ordered=setting.ordered,
    )
    actors: list[Actor] = [*publishers, receiver, Clock(*range(len(ours)))]
    if setting.converges:
        actors.append(ConvergenceOperator(ours, tuple(one.name for one in (*publishers, receiver)), setting.converges))
    senders = tuple(one.name for one in publishers)
    return System(
        name,
        about,
        tuple(actors),
        Network(setting.in_flight, lossy=False, duplicating=setting.copies, ordered=setting.ordered),
        properties=tuple(properties(publishers, receiver, setting)),
        budgets=(
            Budget("losses", setting.lost, lambda actor, event: isinstance(event, Send) and event.lost),
            Budget("forgeries", setting.forged, lambda actor, event: isinstance(event, Send) and event.forged > 0),
            Budget("inventions", setting.invented, lambda actor, event: isinstance(event, Send) and event.invented > 0),
            at_most("flips of the receiver", setting.flips, Rotate, actors=(RECEIVER,)),
            at_most("flips of publishers", setting.own_flips, Rotate, actors=senders),
            at_most("restarts", setting.lives - 1, Restart),
            at_most("comings", setting.comes, Subscribe),
            at_most("goings", max(0, setting.comes - 1), Unsubscribe),
        ),
        bounds={"what is lost": "is lost when it is sent", "a window": "may turn at any moment"},
    )


def properties(publishers: list[WindowPublisher], receiver: WindowReceiver, setting: WindowSetting) -> list[Property]:
    """What must hold, and what must happen sometimes."""
    found: list[Property] = [
        Always(f"{how.name} {one.name}", f"never: {how.value}", (one.is_broken(how),), _not)
        for how in NumberFault
        for one in publishers
    ]
    found += [never(receiver, how) for how in list_promised(setting)]
    found += [Sometimes(f"{verdict} is told", "", (receiver.is_told(verdict),), bool) for verdict in setting.shows]
    found += [Sometimes("nothing is numbered", "", (publishers[0].has_refused(),), bool)] if setting.refused else []
    return found


def list_promised(setting: WindowSetting) -> tuple[WindowViolation, ...]:
    """What is never broken within these bounds."""
    if setting.forged:
        return (WindowViolation.ONCE, WindowViolation.SAME)
    if setting.invented:
        return (
            WindowViolation.ONCE,
            WindowViolation.EXACT,
            WindowViolation.NOFALSE,
            WindowViolation.DETECT,
            WindowViolation.SAME,
        )
    if not setting.ordered:
        return UNORDERED
    if setting.places:
        return (*(how for how in PROMISES if how is not WindowViolation.JOIN), WindowViolation.CROWD)
    return PROMISES if setting.careful else tuple(how for how in PROMISES if how is not WindowViolation.JOIN)


def never(receiver: WindowReceiver, how: WindowViolation, name: str = "") -> Always:
    """This is never broken."""
    return Always(name or how.name, f"never: {how.value}", (receiver.is_broken(how),), lambda broken: not broken)


class WindowCounterexample(msgspec.Struct, frozen=True):
    """`about`: what goes wrong; `breaks`: the property; a limit is what DETECT leaves out, and has its name."""

    name: str
    about: str
    setting: WindowSetting
    breaks: str

    def system(self, variant: str = "settled") -> System:
        """The system in a variant, and of its properties the one that is to break."""
        made = build(self.name, self.about, self.setting, variant)
        wanted = [one for one in made.properties if one.name.partition(" ")[0] == self.breaks]
        return replace(made, properties=tuple(wanted or [strict(made, self.breaks)]))


def strict(made: System, name: str) -> Property:
    """What would hold without a limit, or without what is assumed."""
    receiver = next(one for one in made.actors if isinstance(one, WindowReceiver))
    if name == "JOIN":
        return never(receiver, WindowViolation.JOIN)
    if name == "limit-forgotten":
        return never(receiver, WindowViolation.FORGOTTEN, f"DETECT {name}")
    if name == "limit-cycled":
        return never(receiver, WindowViolation.CYCLED, f"DETECT {name}")
    publisher = next(one for one in made.actors if isinstance(one, WindowPublisher))
    place = (publisher.subjects[0], f"{publisher.name}~1")
    views = (publisher.last_sent(), receiver.find_arrived(place, publisher.messages + 1))
    text = "what was sent has come, or is known to be missing, when nothing is on its way any more"
    return Always(f"DETECT {name}", text, views, lambda sent, arrived: sent <= arrived, quiet=True)


AS_WRITTEN = WindowCounterexample(
    "one-map",
    "two publishers of a subject: what one sends is dropped as a repeat of what the other has sent",
    WindowSetting(walls=(STEADY, STEADY), messages=2, lost=0),
    "ONCE",
)
"""The shipped machines keep the property in the same system."""

LIMITS = (
    WindowCounterexample(
        "limit-forgotten",
        "the receiver's window turns twice: it has forgotten the stream, and the next message is FIRST",
        WindowSetting(messages=3, lost=1, flips=2),
        "limit-forgotten",
    ),
    WindowCounterexample(
        "limit-last",
        "the last message is lost: nothing follows that would show it",
        WindowSetting(messages=2, lost=1),
        "limit-last",
    ),
    WindowCounterexample(
        "limit-cycled",
        "the last message before its publisher forgets the subject is lost: what follows says nothing of it",
        WindowSetting(messages=3, lost=1, own_flips=2),
        "limit-cycled",
    ),
)
"""Of the shipped machines: losses that stay unseen."""

ASSUMED = (
    WindowCounterexample(
        "join-loses-later",
        "the network loses after it has converged: the first message of a stream",
        WindowSetting(messages=2, lost=1, converges=1),
        "JOIN",
    ),
    WindowCounterexample(
        "join-ahead-of-the-clock",
        "a clock that steps back leaves a publisher in a frame that is still to come when the network converges",
        WindowSetting(walls=(BACK,), messages=2, lost=1, converges=1, careful=True),
        "JOIN",
    ),
)
"""Of the shipped machines: JOIN, where what it assumes is not so."""
