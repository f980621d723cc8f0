"""Every system of shared subscriptions, by its name."""

from __future__ import annotations

from functools import wraps

from statemachines_spec.explorer.property import Eventually
from statemachines_spec.explorer.system import System
from statemachines_spec.shared_subscriptions import (
    contracts,
    declaration_systems,
    private_systems,
    systems,
    timed,
    unreachable,
)

SYSTEMS: dict[str, str] = {
    **{name: about for name, (about, _) in systems.SYSTEMS.items()},
    **{name: about for name, (about, _) in timed.SYSTEMS.items()},
    **declaration_systems.ABOUT,
    **private_systems.ABOUT,
    **contracts.ABOUT,
    **unreachable.ABOUT,
}
"""Name -> about."""


@wraps(timed.any_system)  # with its module, on which the certificates of its systems rest
def system(name: str, size: str = "small", variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """The system called so."""
    build = unreachable.system if name in unreachable.ABOUT else timed.any_system
    return build(name, size, variant, without)


def obligations_of(made: System) -> tuple[Eventually, ...]:
    """What must be met sooner or later in a system."""
    return made.obligations if made.name in unreachable.ABOUT else timed.obligations_of(made)
