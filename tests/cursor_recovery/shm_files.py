"""What lies in the real shared memory."""

from statemachines.drivers.cursor_recovery.segment import DIRECTORY


def left_over(name):
    """Files there that bear the name."""
    return sorted(path.name for path in DIRECTORY.iterdir() if name in path.name)
