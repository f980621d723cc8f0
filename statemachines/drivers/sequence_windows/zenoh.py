"""Sequence windows over zenoh, for applications: the names in one place (extra `zenoh`; docs/sequence_windows.md)."""

from statemachines.drivers.sequence_windows.zenoh_publisher import (
    SequencedZenohPublisher as SequencedZenohPublisher,
)
from statemachines.drivers.sequence_windows.zenoh_publisher import (
    declare_sequenced_publisher as declare_sequenced_publisher,
)
from statemachines.drivers.sequence_windows.zenoh_subscriber import (
    SequencedZenohSubscriber as SequencedZenohSubscriber,
)
from statemachines.drivers.sequence_windows.zenoh_subscriber import (
    declare_sequenced_subscriber as declare_sequenced_subscriber,
)
