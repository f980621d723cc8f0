"""Advisory systems: systems of a client that is advised of its losses, and of nothing else."""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.sequence_windows.loss_notifier import LISTED, LOST_MAX, PERIOD_NS, Lost
from statemachines.sequence_windows.properties.names import CONTENT, NOTIFY, THROTTLE
from statemachines_spec.explorer.actor import Actor
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Always, Property, Sometimes
from statemachines_spec.explorer.system import Budget, System
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.explorer.timing import Timing
from statemachines_spec.sequence_windows.client import PROMPT, SECOND, AdvisedClient

MANY = tuple((f"s{number}", 1) for number in range(LISTED + 2))
"""More subjects than an advisory lists."""


def advisories(about: str) -> System:
    """A second may be over at any moment."""
    return _system("advisories", about, AdvisedClient(6))


def great_advisories(about: str) -> System:
    """What is lost does not fit into an advisory."""
    losses = (Lost((("a", LOST_MAX),)), Lost((("a", 1), ("b", 2))))
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
