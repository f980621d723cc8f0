"""The demo of cursor recovery: log lines through shared memory, while whoever writes or ships them is killed."""

from statemachines.demo.cursor_recovery.play import QueueDemo

DEMO = QueueDemo()
