"""`python -m statemachines` is `gapless`."""

from statemachines.cli import main

main()
