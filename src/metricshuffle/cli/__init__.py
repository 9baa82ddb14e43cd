"""The command line: one file a command. Importing this package is cheap; numbers are imported by the commands that need them."""


def main() -> None:
    """The `metricshuffle` command."""
    import signal
    import sys
    from types import FrameType

    from metricshuffle.cli.app import app

    def stopped(number: int, frame: FrameType | None) -> None:
        # As an exception, so that temporary files are removed on the way out.
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, stopped)
    app()
