"""CycloneDX's own schema, to which the tests hold our SBOMs. It takes a second for a real one: no build does."""

from __future__ import annotations

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from jsonschema import Draft7Validator

SPECIFICATION = SchemaVersion.V1_7

_is_uri_reference = Draft7Validator.FORMAT_CHECKER.checkers["uri-reference"][0]


@Draft7Validator.FORMAT_CHECKER.checks("iri-reference")
def is_ascii_reference(value: object) -> bool:
    """All that we write is ASCII, where an IRI is a URI: one regular expression, where a whole parser took seconds."""
    return not (isinstance(value, str) and "\n" in value) and bool(_is_uri_reference(value))


def fault(content: bytes) -> str | None:
    """What is wrong with a document, by its schema and without a field that the schema lacks; None when nothing is."""
    try:
        wrong: object = JsonStrictValidator(SPECIFICATION).validate_str(content.decode())
    except ValueError as error:
        wrong = error
    return None if wrong is None else str(wrong)
