"""Properties of sequence windows that simulator, explorer and Hypothesis judge by the same observers.

An observer is a frozen value of one publisher and subject, or of one client.  It knows messages by their ordinals, and
asks no record of a machine:

    heard, broken = heard.observe(ArrivedMessage(3, 3, missed=1), told)
"""

from __future__ import annotations

from statemachines.sequence_windows.properties import names

PROPERTIES: tuple[str, ...] = (
    names.MONO, names.ONCE, names.EXACT, names.NOFALSE, names.DETECT, names.CROWD, names.JOIN, names.THROTTLE,
    names.NOTIFY,
)  # fmt: skip
"""Each is on the page of properties."""
