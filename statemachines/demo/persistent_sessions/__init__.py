"""The demo of persistent sessions: a client whose node is killed between what was published and what it got."""

from statemachines.demo.persistent_sessions.play import SessionDemo

DEMO = SessionDemo()
