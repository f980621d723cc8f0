"""Cursor recovery as closed systems: processes that may die at any access, a component for each word of memory."""

from statemachines_spec.cursor_recovery.allowed import ALLOWED
from statemachines_spec.cursor_recovery.bugs import BUGS
from statemachines_spec.cursor_recovery.directed_systems import DIRECTED_SYSTEMS
from statemachines_spec.cursor_recovery.systems import SYSTEMS, VARIANTS, system
from statemachines_spec.protocol import CheckProtocol

SPEC = CheckProtocol(
    systems={name: about for name, (about, _) in SYSTEMS.items()},
    build=system,
    sizes=("small", "ci"),
    variants=VARIANTS,
    bugs=BUGS,
    directed=DIRECTED_SYSTEMS,
    allowed=ALLOWED,
)
