"""SQLite: both stores in one file, safe under several processes.

Write-ahead log, synchronous=NORMAL: a SIGKILL at any time loses nothing that was committed; a power failure may lose
the last commits (never the consistency of the file).  Each store runs in a worker thread of its own, never on the loop.
"""

from statemachines.drivers.shared_subscriptions.sqlite.group_store import SqliteGroupStore as SqliteGroupStore
from statemachines.drivers.shared_subscriptions.sqlite.stream_store import SqliteStreamStore as SqliteStreamStore
from statemachines.drivers.sql.failure import StoreDamaged as StoreDamaged
from statemachines.drivers.sql.failure import StoreUnavailable as StoreUnavailable
