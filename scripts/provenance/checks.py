"""Whether the documents are what they claim to be, by their schemas. For `verify` and the tests."""

from __future__ import annotations

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from scripts.errors import BuildError
from scripts.provenance import statement

SPECIFICATION = SchemaVersion.V1_7


def check_statement(content: bytes) -> None:
    """Raise `BuildError` unless `content` is an in-toto statement with SLSA provenance, and nothing else."""
    statement.check(content)


def check_sbom(content: bytes) -> None:
    """Raise `BuildError` unless `content` is CycloneDX by its schema, without a field that the schema lacks."""
    try:
        wrong: object = JsonStrictValidator(SPECIFICATION).validate_str(content.decode())
    except ValueError as error:
        wrong = error
    if wrong is not None:
        raise BuildError(
            "the SBOM is not a CycloneDX document", expected=f"CycloneDX {SPECIFICATION.to_version()}", found=str(wrong)
        )
