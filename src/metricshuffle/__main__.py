"""`python -m metricshuffle` is the command line."""

from metricshuffle.cli import main

if __name__ == "__main__":
    main()
