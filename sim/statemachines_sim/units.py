"""Units: nanoseconds in a millisecond and in a second."""

from typing import Final

MS: Final = 1_000_000
S: Final = 1_000_000_000
