"""The Python engine's flags."""

from __future__ import annotations

import argparse


def add_cli_args(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Declare what the front end passes on behind `--`."""
    parser.add_argument("--dtype")
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--enforce-eager", action="store_true")
    parser.add_argument("--weight-transfer-config")
    parser.add_argument("--worker-extension-cls")
    parser.add_argument("--tensor-parallel-size", type=int)
    return parser
