"""A stand-in of a test for the runtime's Python side."""
