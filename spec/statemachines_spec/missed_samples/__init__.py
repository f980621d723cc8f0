"""Missed-samples recovery as closed systems: publishers, a cache, a subscriber, and a judge that sees what comes."""

from statemachines_spec.missed_samples.allowed import ALLOWED
from statemachines_spec.missed_samples.bugs import BUGS
from statemachines_spec.missed_samples.directed_systems import DIRECTED_SYSTEMS
from statemachines_spec.missed_samples.systems import SYSTEMS, VARIANTS, system
from statemachines_spec.protocol import CheckProtocol

SPEC = CheckProtocol(
    systems={name: about for name, (about, _) in SYSTEMS.items()},
    build=system,
    variants=VARIANTS,
    bugs=BUGS,
    directed=DIRECTED_SYSTEMS,
    allowed=ALLOWED,
)
