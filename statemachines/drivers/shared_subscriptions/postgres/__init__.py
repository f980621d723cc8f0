"""PostgreSQL: both stores in the schema `gapless` of one database, safe under any number of processes and hosts.

What the server has committed is as safe as the server (with fsync and synchronous_commit on, its defaults: also against
power loss).  A lost connection is the protocol's recoverable store error, and the next request connects anew.  Each
store runs in a worker thread of its own, never on the loop.  Needs the extra `postgres`.
"""

from statemachines.drivers.shared_subscriptions.postgres.group_store import PostgresGroupStore as PostgresGroupStore
from statemachines.drivers.shared_subscriptions.postgres.stream_store import PostgresStreamStore as PostgresStreamStore
