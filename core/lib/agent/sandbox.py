"""The agent CLI's own sandbox for what an agent runs in a shell: whether this machine has it, and what it lets through."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from lib.contract import HOUSE, Json, StrataError
from lib.disk import places
from lib.process import processes

MODES = ("require", "prefer", "off")


def available() -> str:
    """Why there is none; nothing where there is. Having the program is not enough: a container may not let it work."""
    if sys.platform == "darwin":
        return "" if shutil.which("sandbox-exec") else "there is no sandbox-exec"
    missing = [name for name in ("bwrap", "socat") if not shutil.which(name)]
    if missing:
        return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
    bwrap = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-net", "--unshare-pid", "true"]
    for tried in (bwrap, ["socat", "-V"]):
        try:
            done = processes.ask(tried, timeout_seconds=20)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{tried[0]} does not work here: {error}"
        if done.returncode != 0:
            return f"{tried[0]} does not work here: {done.stderr.decode('utf-8', 'replace').strip()[-200:]}"
    return ""


def wanted(mode: str, shell: bool) -> bool:
    """Whether a session is to be sandboxed. Without a shell there is nothing to put into a sandbox."""
    if mode == "off" or not shell:
        return False
    why = available()
    if why and mode == "require":
        hint = "install bubblewrap and socat (Linux), or say `sandbox: prefer`"
        raise StrataError("NO_SANDBOX", f"a sandbox is required, and {why}", hint)
    return not why


STATE = ("core", "config", "prompts")  # of the house: what decides how everything else is judged


def closed(session: Path, scope: tuple[str, ...], cwd: Path) -> tuple[Path, ...]:
    """What no agent writes: the session, the house, and what the user brings, unless a scope names a part of it on purpose."""
    kept = [*(HOUSE / name for name in STATE), *places.brought()]
    return (session, *(path for path in kept if not any(_names(glob, cwd, path) for glob in scope)))


def _names(glob: str, cwd: Path, folder: Path) -> bool:
    """Whether a glob speaks of this very folder: `core/**` does, `**` does not."""
    plain = glob.split("*", maxsplit=1)[0]
    return bool(plain.strip("/")) and (cwd / plain).resolve().is_relative_to(folder)


def refused(place: Path, closed: tuple[Path, ...], out: Path, cwd: Path) -> Path | None:
    """The closed folder that a path leads into, whatever links are on the way. A working folder that lies in it, as a worktree
    does, is open."""
    real, here = place.resolve(), cwd.resolve()
    if real.is_relative_to(out.resolve()):
        return None
    for folder in (f.resolve() for f in closed):
        if real.is_relative_to(folder) and not (here.is_relative_to(folder) and real.is_relative_to(here)):
            return folder
    return None


def within(closed: tuple[Path, ...], writes: tuple[Path, ...]) -> list[Path]:
    """The closed folders that lie in what may be written. To all others a sandboxed shell has no way in the first place."""
    return [folder for folder in closed if any(folder.resolve().is_relative_to(place.resolve()) for place in writes)]


def settings(
    domains: tuple[str, ...],
    writes: tuple[Path, ...],
    closed: tuple[Path, ...],
    secret_files: tuple[Path, ...],
    secret_variables: tuple[str, ...],
) -> Json:
    """Nothing runs outside of it, and if it cannot be set up nothing runs at all. Tools of ours neither: one of them runs
    whatever a file of checks says, so an agent that is to start them says `sandbox: off`."""
    return {
        "enabled": True,
        "failIfUnavailable": True,
        "allowUnsandboxedCommands": False,
        "autoAllowBashIfSandboxed": False,
        "network": {"allowedDomains": list(domains)},
        "filesystem": {"allowWrite": [str(p) for p in writes], "denyWrite": [str(p) for p in within(closed, writes)]},
        # The login is for the CLI, and for tools of ours; nothing that runs in the sandbox is one.
        "credentials": {
            "files": [{"path": str(p), "mode": "deny"} for p in secret_files if p.exists()],
            "envVars": [{"name": name, "mode": "deny"} for name in secret_variables],
        },
    }
