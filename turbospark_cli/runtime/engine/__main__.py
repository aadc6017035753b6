"""`python -m turbospark_cli.runtime.engine --fd N`: an engine process on an inherited socket."""

from turbospark_cli.runtime.engine.main import main

if __name__ == "__main__":
    main()
