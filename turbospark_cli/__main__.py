"""Entry of the script `turbospark` and of `python -m turbospark_cli`.

Imports nothing at its top, so that Ctrl-C has its exit code while the program is still being loaded.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from turbospark_cli import cli

        cli.main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
