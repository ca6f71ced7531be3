"""What a knowledge base is made of: sources, documents, versions."""

from __future__ import annotations

from msgspec import Struct

SCHEMA_VERSION = "1.0.0"
MANIFEST = "kb_manifest.json"  # in the root: which version is current, and all there are
INDEX = "index.json"  # in a version
SEARCH = "index.sqlite"  # in a version: the same, to be searched
GENERAL = "general"  # the domain of what is about no one domain
CROSS = "cross_cutting"
SUMMARY, DETAIL, FULL = TIERS = ("summary", "detail", "full_research")


class Source(Struct, frozen=True):
    """A research output, as the knowledge base keeps it: whole, in one document, with the run it came from."""

    key: str  # what it is about: the same in every run
    type: str
    domain: str
    vertical: str
    persona: str
    name: str  # of a report about no one of these
    sha256: str  # of its text
    run: str
    date: str
    id: str = ""  # in the manifest of its run

    @property
    def path(self) -> str:
        """The document that holds it."""
        if self.type == "horizontal":
            return f"{CROSS}/reports/{self.name}.md"
        where = f"domains/{self.domain}"
        if self.type == "service_category":
            return f"{where}/report.md"
        if self.type == "title":
            return f"{where}/personas/{self.persona}.md"
        if self.type == "vertical":
            return f"{where}/verticals/{self.vertical}/report.md"
        return f"{where}/verticals/{self.vertical}/playbooks/{self.persona}.md"


class Origin(Struct, frozen=True):
    """Where a document, or a part of it, comes from."""

    key: str
    run: str
    date: str
    sha256: str


class Document(Struct, frozen=True):
    """A line of the index."""

    path: str
    title: str
    domain: str = ""
    vertical: str = ""
    persona: str = ""
    type: str = ""
    summary: str = ""
    keywords: tuple[str, ...] = ()
    detail_level: str = SUMMARY
    related: tuple[str, ...] = ()
    sources: tuple[Origin, ...] = ()
    made_of: str = ""  # the digest of what it was made from: the same is not made again
    sha256: str = ""
    size: int = 0


class Index(Struct, frozen=True):
    documents: tuple[Document, ...] = ()
    sources: tuple[Source, ...] = ()
    empty: tuple[str, ...] = ()  # digests of what came to nothing: there was nothing to extract
    renderer: str = ""

    def document(self, path: str) -> Document | None:
        return next((one for one in self.documents if one.path == path), None)


class Version(Struct, frozen=True, omit_defaults=True):
    version: int
    created_at: str
    source_execution_id: str
    source_manifest: str
    domains: tuple[str, ...] = ()
    verticals: tuple[str, ...] = ()
    personas: tuple[str, ...] = ()
    total_documents: int = 0
    total_size_bytes: int = 0
    changelog: tuple[str, ...] = ()
    index_sha256: str = ""


class Manifest(Struct, frozen=True):
    schema_version: str = SCHEMA_VERSION
    current_version: int = 0
    versions: tuple[Version, ...] = ()
