"""The doctor: what this machine lacks for a stack, each with the command that mends it.

It only looks: it writes nothing, asks nobody on the network, shows no secret, and ends within ten seconds,
whatever hangs.
Standard library and `scripts.errors` only, so that `python3 -m scripts.doctor` works in a fresh checkout.
"""
