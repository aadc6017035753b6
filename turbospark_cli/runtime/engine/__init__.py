"""What runs inside an engine process: the only place that imports MLX to generate text."""
