"""Models on disk and where they come from; no MLX except in `convert`."""
