"""Run plane: a stack's manifest becomes a running stack, a training run, evidence and a verdict.

Runs in the tool environment. Imports neither torch nor vllm, and never `scripts`: the build plane's
`dist/<stack>/manifest.json` is the only bridge between the two.
"""
