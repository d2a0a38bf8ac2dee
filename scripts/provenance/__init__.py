"""What a `dist/<stack>` was made of (`sbom.cdx.json`) and how (`provenance.json`), for readers who were not there.

`documents` is a pure function of `facts.Facts`. The order of a build, in which nothing refers to what comes after it:
artifacts, the manifest's text, the SBOM, the statement about all three, SHA256SUMS over all four, the manifest's file.
May not import what builds or installs; `build` calls this. docs/provenance.md says what each field means.
"""

from __future__ import annotations

from scripts.provenance.facts import Facts

SBOM_NAME = "sbom.cdx.json"
STATEMENT_NAME = "provenance.json"


def documents(facts: Facts) -> dict[str, bytes]:
    """File name -> content of the documents beside the artifacts. Equal facts give equal bytes, anywhere."""
    # Their libraries take a second to load, and most builds find nothing to do.
    from scripts.provenance import sbom, statement

    contents = sbom.of(facts)
    return {SBOM_NAME: contents, STATEMENT_NAME: statement.about(facts, {SBOM_NAME: contents})}
