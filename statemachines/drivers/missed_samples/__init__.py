"""Missed samples over zenoh, for applications (docs/zenoh.md); needs the extra `zenoh`."""

try:
    import zenoh as _zenoh  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "zenoh":
        raise
    raise ModuleNotFoundError("needs eclipse-zenoh: pip install 'gapless[zenoh]'", name="zenoh") from None

from statemachines.drivers.missed_samples.cache import ReliabilityCache as ReliabilityCache
from statemachines.drivers.missed_samples.cache import declare_reliability_cache as declare_reliability_cache
from statemachines.drivers.missed_samples.loop_thread import LoopThread as LoopThread
from statemachines.drivers.missed_samples.publisher import ReliablePublisher as ReliablePublisher
from statemachines.drivers.missed_samples.publisher import declare_reliable_publisher as declare_reliable_publisher
from statemachines.drivers.missed_samples.received import ReceivedSample as ReceivedSample
from statemachines.drivers.missed_samples.session import session_config as session_config
from statemachines.drivers.missed_samples.session import zenoh_session as zenoh_session
from statemachines.drivers.missed_samples.subscriber import ReliableSubscriber as ReliableSubscriber
from statemachines.drivers.missed_samples.subscriber import declare_reliable_subscriber as declare_reliable_subscriber
from statemachines.drivers.protocol import DriverProtocol
from statemachines.missed_samples.message import Missed as Missed
from statemachines.missed_samples.publisher import Beats as Beats
from statemachines.missed_samples.recovery import Recovery as Recovery
from statemachines.missed_samples.subscriber_record import History as History

DRIVERS = DriverProtocol(
    roles={
        "zenoh-router": "statemachines.drivers.missed_samples.nodes:router",
        "cache": "statemachines.drivers.missed_samples.nodes:cache",
        "zenoh-publisher": "statemachines.drivers.missed_samples.nodes:publisher",
        "zenoh-subscriber": "statemachines.drivers.missed_samples.nodes:subscriber",
    }
)
