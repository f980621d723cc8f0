"""Sequence windows as closed systems: publishers and a receiver that forget, and a judge that knows what was sent."""

from statemachines_spec.protocol import CheckProtocol
from statemachines_spec.sequence_windows.bugs import BUGS
from statemachines_spec.sequence_windows.systems import SYSTEMS, VARIANTS, system

SPEC = CheckProtocol(
    systems={name: about for name, (about, _) in SYSTEMS.items()},
    build=system,
    variants=VARIANTS,
    bugs=BUGS,
)
