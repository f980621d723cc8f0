"""Missed-samples recovery (source: seeds/missed-samples-recovery.md): what one Subscriber keeps of one source.

Publisher, cache and the Subscriber that holds many sources are still to come.
"""

from statemachines.missed_samples.source import SOURCE

MACHINES = (SOURCE,)
"""The machines of the protocol."""
