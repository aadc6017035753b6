"""Requests, events, queues and engine processes; knows nothing of HTTP, Typer or a protocol."""
