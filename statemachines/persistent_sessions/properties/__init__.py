"""Properties of persistent sessions that several methods judge; each is written once, here.

Simulator, explorer and Hypothesis feed what happens to frozen observers, and report what those return.
"""

from __future__ import annotations

from typing import Final

PROPERTIES: Final = (
    "GAP", "TWICE", "UNCOMMITTED", "UNSTORED", "MAXIMUM", "STRANGER", "ORDER", "AGED", "COMPLETE", "COUNTED", "KEPT",
    "OLD", "REUSED", "FORGOTTEN", "EXPIRED", "PRESENT", "STOLEN", "SPLIT", "SUPERSEDED", "REDELIVERED", "ENDS", "TAKES",
)  # fmt: skip
"""Each property that a module of this package judges."""
