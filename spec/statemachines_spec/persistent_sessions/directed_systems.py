"""Directed systems: where mistakes are looked for: every system for what breaks, the small ones also for what is
never met.

Every system of persistent sessions with those that stand apart: certificates of the others do not rest on them.
"""

from __future__ import annotations

from functools import partial, wraps

from msgspec.structs import replace

from statemachines_spec.directed_system import DirectedSystem
from statemachines_spec.explorer.property import Eventually
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
from statemachines_spec.persistent_sessions.systems import SessionSetting, build

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


LAST = ("lag", "resumes", "slow-reads", "overdue", "leaving", "second", "fence-and-break", "writer-crash", "slow-fence",
        "writer-begins", "collected", "collected-unclear", "collected-aging", "acknowledged-together",
        "clean-start", "taken-in-turn", "taken-two-writers", "taken-bounded", "taken-writer-dies")  # fmt: skip
"""The largest come last."""

TAKEN = ("taken-over", "taken-over-late", "old-dies", "taken-one-at-a-time", "old-lies", "takeover-lost",
         "taken-exactly-once", "taker-dies", "taken-at-once", "old-lies-of-epochs", "old-silent")  # fmt: skip
"""Those with a takeover come behind the small ones."""

AT_LAST = ("marked", "no-lag", "break", "buffer", "silence", "collector-stops", "collected-late", "abandoned", "expiry",
           "life-unclear", "forgotten", "aging", "collected-away", "full", "comes-late", "node-there-and-back",
           "node-leaves", "node-dies", "node-row-lost", "node-apart", "node-starts-clean",
           "node-claims-once")  # fmt: skip
"""Systems whose obligations are judged, too."""


TAKEN_AT_LAST = ("taken-over", "old-silent")
"""And of those the ones whose obligations are judged, too."""


def list_obligations(made: System) -> tuple[Eventually, ...]:
    """Those of the system."""
    return made.obligations


def _system(name: str) -> System:
    """The system called so, as this process has it: no other one knows of a bug that is planted here."""
    return replace(system(name), origin=None)


DEAD_WRITER = "a writer dies before it has shown its marker"


def _dead_writer() -> System:
    setting = SessionSetting(messages=(1,), lag=0, slow=(), writer_lives=2, repeats=True)
    return build("dead-writer", DEAD_WRITER, setting)


DIRECTED_SYSTEMS = (
    *(DirectedSystem(name, SYSTEMS[name], partial(_system, name)) for name in SYSTEMS if name not in (*LAST, *TAKEN)),
    *(DirectedSystem(f"{name} at last", SYSTEMS[name], partial(_system, name), list_obligations) for name in AT_LAST),
    DirectedSystem("dead-writer at last", DEAD_WRITER, _dead_writer, list_obligations),
    *(DirectedSystem(name, SYSTEMS[name], partial(_system, name)) for name in TAKEN),
    *(
        DirectedSystem(f"{name} at last", SYSTEMS[name], partial(_system, name), list_obligations)
        for name in TAKEN_AT_LAST
    ),
    *(DirectedSystem(name, SYSTEMS[name], partial(_system, name)) for name in LAST),
)
