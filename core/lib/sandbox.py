"""The agent CLI's own sandbox for what an agent runs in a shell: whether this machine has it, and what it lets through."""

from __future__ import annotations

import shutil
import subprocess
import sys

from lib import process
from lib.contract import Json, StrataError

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
            done = process.ask(tried, timeout_seconds=20)
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


def settings(domains: tuple[str, ...]) -> Json:
    """Nothing runs outside of it, and if it cannot be set up nothing runs at all. Tools of ours neither: one of them runs
    whatever a file of checks says, so an agent that is to start them says `sandbox: off`."""
    return {
        "enabled": True,
        "failIfUnavailable": True,
        "allowUnsandboxedCommands": False,
        "autoAllowBashIfSandboxed": False,
        "network": {"allowedDomains": list(domains)},
    }
