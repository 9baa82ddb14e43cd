"""The command line, one module per command.

Importing this package is cheap; each command imports the numerical modules it needs.
"""


def main() -> None:
    """Run the `metricshuffle` command."""
    import gc
    import os
    import signal
    import sys
    from types import FrameType

    # Imports create hundreds of thousands of permanent objects; the default garbage collection
    # every 700 allocations takes a tenth of a second.
    gc.set_threshold(50_000, 20, 20)
    # Matrices here are small: more BLAS threads mostly wait for each other and occupy processors.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from metricshuffle.cli.command_group import app

    def stopped(number: int, frame: FrameType | None) -> None:
        # This raises an exception, so that temporary files are removed.
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, stopped)
    app()
