"""Entry: where the command begins, before anything large is imported.

A signal that comes while modules are imported would end in the middle of somebody's module, with a traceback or without
an effect.  So this module first lets Ctrl-C end the process as the system does, without a word;
then a command says what ends it.  There is nothing to clean up yet.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # the module around it imports enum, and Ctrl-C may come meanwhile
import gc

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # where Ctrl-C is ignored, it stays so
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    """The console script `gapless`, and `python -m statemachines`."""
    from statemachines.interrupts import end_early

    end_early()
    gc.disable()  # importing makes no garbage, and looking for some takes a tenth of a short command
    from statemachines.cli import main as command

    gc.freeze()
    gc.enable()
    command()
