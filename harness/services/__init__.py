"""Service specifications: each module is a pure function from the run's configuration to a `ServiceSpec`."""
