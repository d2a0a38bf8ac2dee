"""A stand-in of a test for the payload."""
