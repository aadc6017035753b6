"""turbospark: one machine as a private AI server and a shell tool."""

__version__ = "0.1.0"
