"""Sequence windows as closed systems: publishers and a receiver that forget, and a judge that knows what was sent."""

from statemachines_spec.protocol import CheckProtocol
from statemachines_spec.sequence_windows.allowed import ALLOWED
from statemachines_spec.sequence_windows.bugs import BUGS
from statemachines_spec.sequence_windows.systems import ABOUT, VARIANTS, system

SPEC = CheckProtocol(
    systems=ABOUT,
    build=system,
    variants=VARIANTS,
    bugs=BUGS,
    allowed=ALLOWED,
)
