"""Moving a trainer's weights into running engines: one session for every backend, and the Gloo backend."""
