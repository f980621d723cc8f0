"""What the tests of MQTT nodes have in common, and the texts `exchanges/*.txt` (`exchanges.py`)."""

import pytest
from _pytest.logging import caplog_handler_key
from waiting import run_async

pytest.register_assert_rewrite("exchanges")


@pytest.fixture
def store(tmp_path):
    """The file of a database that is not there yet."""
    return str(tmp_path / "sessions.db")


def pytest_collect_file(file_path, parent):
    return Exchanges.from_parent(parent, path=file_path) if file_path.parent.name == "exchanges" else None


class Exchanges(pytest.File):
    """A test for each block."""

    def collect(self):
        from exchanges import read_blocks

        for title, steps in read_blocks(self.path.read_text(encoding="utf-8")):
            yield Exchange.from_parent(self, name=title, steps=steps)


class Exchange(pytest.Item):
    """One block."""

    def __init__(self, *, steps, **kwargs):
        super().__init__(**kwargs)
        self.steps = steps

    def runtest(self):
        from exchanges import play_block

        run_async(play_block(self.steps, self.stash[caplog_handler_key].records))
