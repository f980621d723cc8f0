"""Every system of shared subscriptions, by its name."""

from __future__ import annotations

from functools import wraps

from statemachines_spec.explorer.property import Eventually
from statemachines_spec.explorer.system import System
from statemachines_spec.shared_subscriptions import (
    contracts,
    declaration_systems,
    private_systems,
    process_contracts,
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
    **process_contracts.ABOUT,
    **unreachable.ABOUT,
}
"""Name -> about."""


@wraps(timed.any_system)  # with its module, on which the certificates of its systems rest
def system(name: str, size: str = "small", variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """The system called so."""
    part = next((one for one in (process_contracts, unreachable) if name in one.ABOUT), None)
    return (timed.any_system if part is None else part.system)(name, size, variant, without)


def obligations_of(made: System) -> tuple[Eventually, ...]:
    """What must be met sooner or later in a system."""
    is_own = made.name in {**process_contracts.ABOUT, **unreachable.ABOUT}
    return made.obligations if is_own else timed.obligations_of(made)
