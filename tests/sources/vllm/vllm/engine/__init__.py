"""What the Python engine is told."""
