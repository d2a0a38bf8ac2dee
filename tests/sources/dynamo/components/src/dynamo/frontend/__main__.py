"""`python -m dynamo.frontend --help`."""

from __future__ import annotations

import argparse

parser = argparse.ArgumentParser(prog="dynamo.frontend")
for flag in (
    "--http-host",
    "--http-port",
    "--namespace",
    "--discovery-backend",
    "--request-plane",
    "--event-plane",
    "--router-min-initial-workers",
):
    parser.add_argument(flag)

if __name__ == "__main__":
    parser.parse_args()
