"""The artifacts of a feature in the repository: Python writes each, and finds out whether somebody else has changed one since."""

from __future__ import annotations

from pathlib import Path

from lib.disk import files
from msgspec import Struct


class Artifacts(Struct, frozen=True):
    session: Path
    folder: Path

    @property
    def _ledger(self) -> Path:
        return self.session / "artifacts" / f"{self.folder.name}.json"

    def _known(self) -> dict[str, list[str]]:
        """By path: what was written there, the newest last."""
        return files.read_json(self._ledger) if self._ledger.exists() else {}

    def write(self, path: str, text: str) -> list[str]:
        """Writes one. What somebody else made of it is kept in the session, and said."""
        place, known = self.folder / path, self._known()
        warnings: list[str] = []
        theirs = place.read_bytes() if place.is_file() else b""
        # Also of an earlier run. What a step that was cut off had written is taken back: an older one of ours is no stranger's.
        strange = files.digest_bytes(theirs) not in known.get(path, [])
        if theirs and strange and theirs != text.encode():
            aside = self._aside(path, theirs)
            warnings.append(f"{path} was changed by somebody else, and is written anew; theirs is kept as {aside}")
        files.write_atomic(place, text)
        self._note(path, place.read_bytes())  # as it is on disk: secrets are taken out on the way
        return warnings

    def append(self, path: str, content: bytes) -> None:
        """Writes one that only grows: `content` is all of it, what stood there before included."""
        files.write_atomic(self.folder / path, content)
        self._note(path, (self.folder / path).read_bytes())

    def foreign(self) -> list[str]:
        """What is not as it was written. Each change is said once."""
        warnings: list[str] = []
        for path, digests in self._known().items():
            place = self.folder / path
            there = place.read_bytes() if place.is_file() else None
            if there is None:
                warnings.append(f"{path} was deleted by somebody else than its creator")
                self._note(path, None)
            elif files.digest_bytes(there) != digests[-1]:
                kept = self._aside(path, there)
                warnings.append(f"{path} was changed by somebody else than its creator; a copy of theirs is {kept}")
                self._note(path, there)
        return warnings

    def _note(self, path: str, content: bytes | None) -> None:
        known = self._known()
        before = known.pop(path, [])
        if content is not None:
            digest = files.digest_bytes(content)
            known[path] = [*(d for d in before if d != digest), digest]
        files.write_json(self._ledger, known)

    def _aside(self, path: str, content: bytes) -> str:
        folder = self._ledger.parent / "theirs"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{files.digest_bytes(content)[:12]}-{Path(path).name}"
        (folder / name).write_bytes(content)
        return str((folder / name).relative_to(self.session))
