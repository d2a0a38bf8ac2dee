"""Whatever JSON can say, and `NaN`, which Python's own writer says too: for property tests in both environments."""

from __future__ import annotations

import json

from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
BODIES = st.binary(max_size=80) | JSON.map(lambda value: json.dumps(value).encode())
"""Of answers: any bytes, or a document."""
