"""The contracts of single machines, as systems by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from statemachines_spec.explorer.system import System
from statemachines_spec.shared_subscriptions import (
    application_systems,
    borrower_contract,
    borrower_times,
    private_contract,
    session_contract,
    standby_contract,
    witness_contract,
)

_PARTS: Final = (
    borrower_contract,
    borrower_times,
    session_contract,
    witness_contract,
    private_contract,
    standby_contract,
    application_systems,
)
BUILDS: Final[dict[str, Callable[[str], System]]] = {name: part.build for part in _PARTS for name in part.ABOUT}
ABOUT: Final = {name: about for part in _PARTS for name, about in part.ABOUT.items()}


def system(name: str, size: str, variant: str, without: tuple[str, ...]) -> System:
    """The contract called so; sizes, variants and deadline orders are about others."""
    arguments: dict[str, Any] = {"name": name, "size": size, "variant": variant, "without": without}
    return replace(BUILDS[name](name), origin=(f"{__name__}:system", arguments))
