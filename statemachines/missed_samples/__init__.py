"""Missed-samples recovery (source: missed-samples recovery): what one Subscriber keeps of one source.

Publisher, cache and the Subscriber that holds many sources are still to come.
"""

from statemachines.kernel.protocol import Protocol

PROTOCOL = Protocol(
    name="missed_samples",
    prefix="MS",
    about="missed-samples recovery: a subscriber asks caches for the samples that it missed",
    machines={"source": "statemachines.missed_samples.source:SOURCE"},
    page="statemachines.missed_samples:clauses.md",
    areas={"testing": "statemachines.testing.missed_samples:TESTING"},
)
