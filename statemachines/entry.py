"""Entry: where the command begins, before anything large is imported.

A signal that comes while modules are imported would end in the middle of somebody's module, with a traceback or without
an effect.  So the first thing that a command does is to say what ends it: there is nothing to clean up yet.
"""

from __future__ import annotations

from statemachines.interrupts import end_early


def main() -> None:
    """The console script `gapless`, and `python -m statemachines`."""
    end_early()
    from statemachines.cli import main as command

    command()
