"""Names of properties, as `spec/sequence_windows/properties.md` has them."""

from __future__ import annotations

from typing import Final

MONO: Final = "MONO"
ONCE: Final = "ONCE"
EXACT: Final = "EXACT"
NOFALSE: Final = "NOFALSE"
DETECT: Final = "DETECT"
CROWD: Final = "CROWD"
JOIN: Final = "JOIN"
THROTTLE: Final = "THROTTLE"
NOTIFY: Final = "NOTIFY"
CONTENT: Final = "CONTENT"
ORDER: Final = "ORDER"
TWICE: Final = "TWICE"
"""ORDER, where it is known that the message itself was handed over before."""
REPORT: Final = "REPORT"
LATE: Final = "LATE"
"""REPORT, where it is known that the message itself counts as lost."""
NOGAP: Final = "NOGAP"
SETTLED: Final = "SETTLED"
QUIET: Final = "QUIET"
