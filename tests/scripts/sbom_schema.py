"""CycloneDX's own schema, to which the tests hold our SBOMs. It takes a second for a real one: no build does."""

from __future__ import annotations

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from jsonschema import Draft7Validator

SPECIFICATION = SchemaVersion.V1_7

# All that we write is ASCII, where an IRI is a URI. Those are held to a regular expression instead of a whole parser.
FORMATS = Draft7Validator.FORMAT_CHECKER.checkers
FORMATS["iri-reference"] = FORMATS["uri-reference"]


def fault(content: bytes) -> str | None:
    """What is wrong with a document, by its schema and without a field that the schema lacks; None when nothing is."""
    try:
        wrong: object = JsonStrictValidator(SPECIFICATION).validate_str(content.decode())
    except ValueError as error:
        wrong = error
    return None if wrong is None else str(wrong)
