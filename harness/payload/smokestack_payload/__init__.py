"""What runs inside the stack's environment: trainer, refit, models.

Never imports `harness` or `scripts`. This module imports nothing, because vLLM loads the package in every process.
"""
