"""The flags of an etcd, without one."""

from __future__ import annotations

import argparse


def main() -> None:
    """`etcd --help`."""
    parser = argparse.ArgumentParser(prog="etcd")
    for flag in (
        "--data-dir",
        "--listen-client-urls",
        "--advertise-client-urls",
        "--listen-peer-urls",
        "--initial-advertise-peer-urls",
        "--initial-cluster",
    ):
        parser.add_argument(flag)
    parser.add_argument("--unsafe-no-fsync", action="store_true")
    parser.parse_args()
