"""The reported faults on the real stack: provoked by real means, each with the outcome that it must have."""
