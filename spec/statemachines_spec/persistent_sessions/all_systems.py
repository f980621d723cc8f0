"""Every system of persistent sessions with those that stand apart: certificates of the others do not rest on them."""

from __future__ import annotations

from functools import wraps

from msgspec.structs import replace

from statemachines_spec.explorer.system import System
from statemachines_spec.persistent_sessions import (
    claim_systems,
    client_inbox_contract,
    collector_contract,
    every_system,
    fresh_session_systems,
    group_member_contract,
    group_systems,
    host_systems,
    look_systems,
    merge_systems,
    node_group_systems,
    publication_contract,
    resume_contract,
    session_life_contract,
    takeover_contract,
    writer_contract,
    writer_flow_contract,
)

CONTRACTS = (
    group_member_contract, takeover_contract, session_life_contract, writer_contract, writer_flow_contract,
    collector_contract, resume_contract, publication_contract,
    client_inbox_contract,
)  # fmt: skip
"""Systems of one machine each; nothing in them is owed in the end."""

APART = (
    merge_systems, host_systems, look_systems, fresh_session_systems, claim_systems, group_systems, node_group_systems,
    *CONTRACTS,
)  # fmt: skip

SYSTEMS: dict[str, str] = {
    **every_system.SYSTEMS,
    **{name: one[0] for module in APART for name, one in module.SYSTEMS.items()},
}
"""Name -> about."""


@wraps(every_system.system)  # with its module, on which the certificates of its systems rest
def system(name: str, size: str = "small", variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """The system called so; one that stands apart is the same at every size and in every variant."""
    for module in APART:
        if name in module.SYSTEMS:
            made: System = module.system(name)
            return replace(made, origin=(f"{module.__name__}:system", {"name": name}))
    return every_system.system(name, size, variant, without)
