"""The downstream agent that builds the knowledge base: a Python class, run by its contract."""

from __future__ import annotations

from pathlib import Path

from lib.disk import records
from lib.disk.clock import now

from packs.downstream import settings as settings_file
from packs.downstream.base import DownstreamAgent
from packs.kb import taking
from packs.kb.store import Store

FOLDER = "knowledge_base"  # below output_dir of the settings


class KnowledgeBaseBuilder(DownstreamAgent):
    def execute(self) -> None:
        """Takes what the run has to give into the store, and leaves what became of it. Run again, it changes nothing."""
        for one in self.bundle.entries:
            one.verify()
        known = self.bundle.settings
        root = Path(self.bundle.working_dir) / str(self.bundle.config.get("kb") or f"{known['output_dir']}/{FOLDER}")
        names = {value: tuple(called) for value, called in known["aliases"].items()}
        offered = taking.sources(self.bundle.entries, self.bundle.execution_id)
        built = Store(root).build(offered, self.bundle.execution_id, self.bundle.manifest_path, now(), names)
        self.write_json("kb_manifest", records.document(Store(root).manifest()))
        self.write("changes", told(built.version.version, built.new, built.version.changelog, built.version.total_documents))


def default_root() -> str:
    return f"{settings_file.read().output_dir}/{FOLDER}"


def told(version: int, new: bool, changelog: tuple[str, ...], documents: int) -> str:
    lines = [f"# Version {version}", "", f"{documents} documents." if new else "Nothing changed: no version was made.", ""]
    return "\n".join([*lines, *(f"- {line}" for line in changelog)]).strip() + "\n"
