"""Missed samples over zenoh, for applications (docs/zenoh.md); needs the extra `zenoh`.

A name is imported when it is used first: who lists the roles of `gapless node` needs no zenoh.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from statemachines.drivers.protocol import DriverProtocol

if find_spec("zenoh") is None:
    raise ModuleNotFoundError("needs eclipse-zenoh: pip install 'gapless[zenoh]'", name="zenoh")

if TYPE_CHECKING:
    from statemachines.drivers.missed_samples.cache import ReliabilityCache as ReliabilityCache
    from statemachines.drivers.missed_samples.cache import declare_reliability_cache as declare_reliability_cache
    from statemachines.drivers.missed_samples.loop_thread import LoopThread as LoopThread
    from statemachines.drivers.missed_samples.publisher import ReliablePublisher as ReliablePublisher
    from statemachines.drivers.missed_samples.publisher import declare_reliable_publisher as declare_reliable_publisher
    from statemachines.drivers.missed_samples.received import ReceivedSample as ReceivedSample
    from statemachines.drivers.missed_samples.session import session_config as session_config
    from statemachines.drivers.missed_samples.session import zenoh_session as zenoh_session
    from statemachines.drivers.missed_samples.subscriber import ReliableSubscriber as ReliableSubscriber
    from statemachines.drivers.missed_samples.subscriber import (
        declare_reliable_subscriber as declare_reliable_subscriber,
    )
    from statemachines.missed_samples.message import Missed as Missed
    from statemachines.missed_samples.publisher import Beats as Beats
    from statemachines.missed_samples.recovery import Recovery as Recovery
    from statemachines.missed_samples.subscriber_record import History as History

DRIVERS: Final = DriverProtocol(
    roles={
        "zenoh-router": "statemachines.drivers.missed_samples.nodes:router",
        "cache": "statemachines.drivers.missed_samples.nodes:cache",
        "zenoh-publisher": "statemachines.drivers.missed_samples.nodes:publisher",
        "zenoh-subscriber": "statemachines.drivers.missed_samples.nodes:subscriber",
    }
)

_PLACES: Final = {
    "Beats": "statemachines.missed_samples.publisher",
    "History": "statemachines.missed_samples.subscriber_record",
    "LoopThread": "statemachines.drivers.missed_samples.loop_thread",
    "Missed": "statemachines.missed_samples.message",
    "ReceivedSample": "statemachines.drivers.missed_samples.received",
    "Recovery": "statemachines.missed_samples.recovery",
    "ReliabilityCache": "statemachines.drivers.missed_samples.cache",
    "ReliablePublisher": "statemachines.drivers.missed_samples.publisher",
    "ReliableSubscriber": "statemachines.drivers.missed_samples.subscriber",
    "declare_reliability_cache": "statemachines.drivers.missed_samples.cache",
    "declare_reliable_publisher": "statemachines.drivers.missed_samples.publisher",
    "declare_reliable_subscriber": "statemachines.drivers.missed_samples.subscriber",
    "session_config": "statemachines.drivers.missed_samples.session",
    "zenoh_session": "statemachines.drivers.missed_samples.session",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
