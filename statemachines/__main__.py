"""`python -m statemachines` is `gapless`."""

from statemachines.entry import main

if __name__ == "__main__":  # and not where a worker of ours imports it
    main()
