"""Trace: what happened, as rows that drivers and the simulator write and that reports judge.

`row` is the contract (the columns), `tables` tells the tables that made it, `parquet` is the file of whole runs, `log`
what a real node appends while it lives and how the logs of a run are merged.
"""

from statemachines.trace.row import COLUMNS as COLUMNS
from statemachines.trace.row import KINDS as KINDS
from statemachines.trace.row import RUN_COLUMNS as RUN_COLUMNS
from statemachines.trace.row import TracedParty as TracedParty
from statemachines.trace.row import TraceRow as TraceRow
from statemachines.trace.row import child_row as child_row
from statemachines.trace.row import event_makers as event_makers
from statemachines.trace.row import event_row as event_row
from statemachines.trace.row import fault_row as fault_row
from statemachines.trace.row import part_rows as part_rows
from statemachines.trace.row import step_makers as step_makers
from statemachines.trace.row import step_rows as step_rows
from statemachines.trace.tables import fingerprint as fingerprint
from statemachines.trace.tables import list_fingerprints as list_fingerprints
