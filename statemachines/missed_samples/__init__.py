"""Missed-samples recovery (source: missed-samples recovery): a subscriber asks caches for the samples that it missed.

Publishers stamp samples with a source and a number, caches keep some of them, subscribers see what is missing, ask for
it, and deliver what comes in order.
"""

from statemachines.kernel.protocol import Protocol

PROTOCOL = Protocol(
    name="missed_samples",
    prefix="MS",
    about="missed-samples recovery: a subscriber asks caches for the samples that it missed",
    machines={
        "publisher": "statemachines.missed_samples.publisher:PUBLISHER",
        "reliability_cache": "statemachines.missed_samples.cache:CACHE",
        "subscriber": "statemachines.missed_samples.subscriber:SUBSCRIBER",
        "source": "statemachines.missed_samples.source:SOURCE",
    },
    page="statemachines.missed_samples:clauses.md",
    areas={
        "sim": "statemachines_sim.missed_samples:SIM",
        "spec": "statemachines_spec.missed_samples:SPEC",
        "drivers": "statemachines.drivers.missed_samples:DRIVERS",
        "reports": "statemachines_reports.missed_samples:REPORTS",
        "demo": "statemachines.demo.missed_samples:DEMO",
        "testing": "statemachines.testing.missed_samples:TESTING",
    },
)
