"""Conversions into MLX installs; run in a throw-away process, since a bad weight file can kill its reader."""
