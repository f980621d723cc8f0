"""Entry: where the command begins, before anything large is imported.

A signal that comes while modules are imported would end in the middle of somebody's module, with a traceback or without
an effect.  So this module first lets Ctrl-C end the process as the system does, without a word;
then a command says what ends it.  There is nothing to clean up yet.
"""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # where Ctrl-C is ignored, it stays so
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    """The console script `gapless`, and `python -m statemachines`."""
    from statemachines.interrupts import end_early

    end_early()
    from statemachines.cli import main as command

    command()
