"""A stand-in of a test for the engine's package."""
