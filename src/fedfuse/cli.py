"""The entry point of the command line: standard streams and signals. The commands are in `commands/`."""

from __future__ import annotations

import sys

from fedfuse.terminal import streams


def main() -> None:
    """Run the command line."""
    try:
        streams.prepare()
        with streams.leaving_at_once():
            from fedfuse.commands.app import run
        streams.stop_like_ctrl_c()
        run()
    except KeyboardInterrupt as stop:
        sys.exit(streams.say_stopped(stop))


if __name__ == "__main__":
    main()
