"""The modules of the made-up protocol are found by the tests of this folder; it is registered in none of them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "made_up"))
