"""The command line: one file a command. Importing this package is cheap; numbers are imported by the commands that need them."""


def main() -> None:
    """The `metricshuffle` command."""
    import gc
    import os
    import signal
    import sys
    from types import FrameType

    # Imports make hundreds of thousands of objects that stay: looking through them for garbage every 700 takes a tenth of a second.
    gc.set_threshold(50_000, 20, 20)
    # Matrices here are small: more threads for them mostly wait for each other, and take up the processors that others use.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from metricshuffle.cli.command_group import app

    def stopped(number: int, frame: FrameType | None) -> None:
        # As an exception, so that temporary files are removed on the way out.
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, stopped)
    app()
