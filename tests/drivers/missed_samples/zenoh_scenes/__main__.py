"""Plays one scene: what is said last is whether it held."""

import asyncio
import sys
import traceback

from zenoh_scenes import SCENES

if __name__ == "__main__":
    try:
        asyncio.run(SCENES[sys.argv[1]]())
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
    print("held")
