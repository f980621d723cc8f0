"""What shared subscriptions give to tests: values, environments, frames; `group` drives whole groups under Hypothesis,
`nodes` starts their processes."""

from __future__ import annotations

from statemachines.testing.protocol import TestProtocol
from statemachines.testing.shared_subscriptions.environments import ENVIRONMENTS, VALUES
from statemachines.testing.shared_subscriptions.readers import READERS

TESTING = TestProtocol(
    values=VALUES,
    environments=ENVIRONMENTS,
    readers=READERS,
    searches="statemachines.testing.shared_subscriptions.group:SEARCHES",
    roles="statemachines.testing.shared_subscriptions.conformance:ROLES",
)
