"""Systems: publishers and a receiver that forget, begin anew, lose and repeat; small ones that end."""

from __future__ import annotations

import msgspec

from statemachines.sequence_windows.sequence import BASE_MAX, FRAME_MAX, number_of, start_of
from statemachines.sequence_windows.subscriber_window import Subscribe, Unsubscribe
from statemachines_spec.explorer.actor import Actor, Restart
from statemachines_spec.explorer.clock import Clock
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Always, Property, Sometimes
from statemachines_spec.explorer.system import Budget, System, at_most
from statemachines_spec.sequence_windows.as_written import AS_WRITTEN
from statemachines_spec.sequence_windows.client import Client
from statemachines_spec.sequence_windows.convergence import Operator
from statemachines_spec.sequence_windows.publisher import RECEIVER, Publisher, Rotate, Send
from statemachines_spec.sequence_windows.receiver import PROMISES, Broken, Receiver
from statemachines_spec.sequence_windows.rules import SHIPPED

STEADY = tuple(start_of(frame) + 5 for frame in (2, 3, 4))
"""A clock that goes on, a frame an instant."""
BACK = tuple(start_of(frame) + 5 for frame in (4, 2, 4))
"""One that steps back by two frames."""
AHEAD = tuple(start_of(frame) + 5 for frame in (4, 5, 6))
SLOW = tuple(start_of(frame) + 5 for frame in (2, 5, 6))
"""Two of which one is behind by two frames at first."""
LAST = (start_of(FRAME_MAX - 1), start_of(FRAME_MAX), start_of(FRAME_MAX + 1))
"""One at the end of all frames."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds a system.  `walls`: clocks of the publishers; `ours`: of the receiver and the operator (none: as the
    first publisher's); `messages` of each publisher; `flips` of the receiver's window, `own_flips` of the publishers';
    `begin`: the last number that every subject has at first; `converges`: how often the operator says so; `careful`:
    then nothing is lost any more; `comes`: how often the receiver subscribes (0: it does from the beginning); `shows`:
    verdicts that must happen."""

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


VARIANTS = {"settled": "as it is shipped", "as_written": "the source, word for word"}

SYSTEMS: dict[str, tuple[str, Setting]] = {
    "rotation": (
        "a publisher whose clock steps back and a receiver; both may forget at any moment",
        Setting(walls=(BACK,), messages=4, lost=2, flips=2, own_flips=2, shows=("skip", "cycle", "first")),
    ),
    "two-subjects": (
        "a publisher of two subjects, whose clock steps back and which forgets at any moment",
        Setting(walls=(BACK,), subjects=("s", "t"), messages=4, own_flips=3, shows=("cycle", "skip")),
    ),
    "two-publishers": (
        "two publishers of one subject, and a receiver that may forget",
        Setting(walls=(STEADY, BACK), messages=3, flips=2, lost=2, shows=("next", "skip")),
    ),
    "copies": (
        "a publisher that begins anew, under another id, and a network that repeats",
        Setting(messages=4, copies=True, lives=2, in_flight=2, shows=("repeat", "skip")),
    ),
    "convergence": (
        "a network that loses until it has converged, and a receiver that comes late",
        Setting(messages=4, lost=2, converges=1, careful=True, comes=2, in_flight=2, shows=("skip", "not_subscribed")),
    ),
    "lossy-convergence": (
        "a network that converges, and loses all the same",
        Setting(walls=(AHEAD,), ours=SLOW, messages=4, lost=2, converges=2, shows=("skip unknown", "skip")),
    ),
    "overtaking": (
        "a network in which messages overtake each other, and come again: neither losses nor joins are judged",
        Setting(messages=3, lost=1, copies=True, in_flight=3, ordered=False, shows=("repeat", "skip")),
    ),
    "used-up": (
        "a publisher whose bases are nearly used up, and whose clock steps back",
        Setting(walls=(BACK,), messages=4, lost=2, begin=number_of(4, BASE_MAX - 2), flips=1, shows=("skip", "next")),
    ),
    "the-end": (
        "a publisher at the end of all frames",
        Setting(
            walls=(LAST,),
            messages=4,
            lost=1,
            own_flips=2,
            begin=number_of(FRAME_MAX, BASE_MAX - 2),
            shows=("next", "first"),
        ),
    ),
    "advisories": ("a client that is advised of its losses", Setting()),
}
"""Name -> (about, bounds)."""


def system(name: str, size: str = "small", variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """The system called so."""
    about, setting = SYSTEMS[name]
    return advisories(about) if name == "advisories" else build(name, about, setting, variant)


def build(name: str, about: str, setting: Setting, variant: str = "settled") -> System:
    """The system with these bounds."""
    rules = AS_WRITTEN if variant == "as_written" else SHIPPED
    ours = setting.ours or setting.walls[0]
    publishers = [
        Publisher(
            f"publisher-{n}",
            walls=walls,
            subjects=setting.subjects,
            messages=setting.messages,
            lives=setting.lives,
            rotates=bool(setting.own_flips),
            begin=setting.begin,
            careful=setting.careful,
            rules=rules,
        )
        for n, walls in enumerate(setting.walls, 1)
    ]
    receiver = Receiver(
        walls=ours,
        subjects=setting.subjects,
        rotates=bool(setting.flips),
        late=bool(setting.comes),
        leaves=setting.comes > 1,
        rules=rules,
    )
    actors: list[Actor] = [*publishers, receiver, Clock(*range(len(ours)))]
    if setting.converges:
        actors.append(Operator(ours, tuple(one.name for one in (*publishers, receiver)), setting.converges))
    senders = tuple(one.name for one in publishers)
    return System(
        name,
        about,
        tuple(actors),
        Network(setting.in_flight, lossy=False, duplicating=setting.copies, ordered=setting.ordered),
        properties=tuple(properties(publishers, receiver, setting)),
        budgets=(
            Budget("losses", setting.lost, lambda actor, event: isinstance(event, Send) and event.lost),
            at_most("flips of the receiver", setting.flips, Rotate, actors=(RECEIVER,)),
            at_most("flips of publishers", setting.own_flips, Rotate, actors=senders),
            at_most("restarts", setting.lives - 1, Restart),
            at_most("comings", setting.comes, Subscribe),
            at_most("goings", max(0, setting.comes - 1), Unsubscribe),
        ),
        bounds={"what is lost": "is lost when it is sent", "a window": "may turn at any moment"},
    )


def properties(publishers: list[Publisher], receiver: Receiver, setting: Setting) -> list[Property]:
    """What must hold, and what must happen sometimes."""
    found: list[Property] = [
        Always(f"MONO {one.name}", "numbers increase", (one.is_broken(),), lambda broken: not broken)
        for one in publishers
    ]
    assumed: tuple[Broken, ...] = () if setting.careful else (Broken.JOIN,)
    if not setting.ordered:
        assumed = tuple(how for how in PROMISES if how is not Broken.ONCE)
    found += [never(receiver, how) for how in PROMISES if how not in assumed]
    found += [Sometimes(f"{verdict} is told", "", (receiver.is_told(verdict),), bool) for verdict in setting.shows]
    return found


def never(receiver: Receiver, how: Broken, name: str = "") -> Always:
    """This is never broken."""
    return Always(name or how.name, f"never: {how.value}", (receiver.is_broken(how),), lambda broken: not broken)


def advisories(about: str) -> System:
    """The notifier, alone."""
    client = Client(6)
    text = "advisories are a second apart, and their sum is what was lost"
    return System(
        "advisories",
        about,
        (client,),
        Network(1, lossy=False, duplicating=False),
        properties=(
            Always("THROTTLE", text, (client.is_hasty_or_wrong(),), lambda wrong: not wrong),
            Always("NOTIFY", "what waits is told when the second is over", (client.waits_without_end(),), _not),
            Sometimes("all is told", "", (client.has_told(),), bool),
        ),
    )


def _not(value: int) -> bool:
    return not value
