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
