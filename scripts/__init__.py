"""The build plane: stack file -> `dist/<stack>/` with its manifest -> `.venv-<stack>`.

Never imports `harness`; `dist/<stack>/manifest.json` is the only bridge between the two.
"""
