"""Scenes that each need a process of their own, forked from one that has imported what they need.

A test starts the server once for its module, and names one scene after the other:

    python -m zenoh_scenes          each line of its input names a scene; each line of its output is a list

The process of a scene ends as any other does, interpreter and all.  One that hangs is killed.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path

from waiting import HANG_S, run_async

TEXT_MAX = 1_000_000
HERE = Path(__file__).parent


class SceneServer:
    """The server as a test sees it; `command`: what is behind `python`."""

    def __init__(self, *command, folder):
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", *command], cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def play(self, name):
        """What the scene printed; raises `AssertionError` with what it logged where it did not end well."""
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        code, printed, logged = json.loads(self._process.stdout.readline())
        assert code == 0, printed + logged
        return printed

    def close(self):
        self._process.communicate()


def serve_scenes(scenes):
    """Play each scene that the input names, in a process of its own."""
    for line in sys.stdin:
        with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as logged:
            pid = os.fork()
            if pid == 0:
                os.dup2(printed.fileno(), 1)
                os.dup2(logged.fileno(), 2)
                sys.exit(play_scene(scenes[line.strip()]))
            code = wait_for_end(pid)
            texts = [os.pread(file.fileno(), TEXT_MAX, 0).decode(errors="replace") for file in (printed, logged)]
            print(json.dumps([code, *texts]), flush=True)


def play_scene(scene):
    try:
        run_async(scene(), hangs=3)
    except BaseException:
        traceback.print_exc()
        return 1
    print("held")
    return 0


def wait_for_end(pid):
    killing = threading.Timer(4 * HANG_S, os.kill, (pid, signal.SIGABRT))  # faulthandler says where it stands
    killing.start()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    killing.cancel()
    return code
