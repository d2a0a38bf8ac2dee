"""CycloneDX's own schema, to which the tests hold our SBOMs. It takes seconds for a real one: no build does."""

from __future__ import annotations

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

SPECIFICATION = SchemaVersion.V1_7


def fault(content: bytes) -> str | None:
    """What is wrong with a document, by its schema and without a field that the schema lacks; None when nothing is."""
    try:
        wrong: object = JsonStrictValidator(SPECIFICATION).validate_str(content.decode())
    except ValueError as error:
        wrong = error
    return None if wrong is None else str(wrong)
