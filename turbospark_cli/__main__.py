"""`python -m turbospark_cli` is `turbospark`."""

from __future__ import annotations

from turbospark_cli.cli import main

if __name__ == "__main__":
    main()
