"""What an agent was given, so that what it starts through Bash cannot take more. Bounds accidents, not a hostile shell."""

from __future__ import annotations

import json
import os
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from lib import names
from lib.contract import StrataError
from lib.disk import records

# From the narrowest to the widest. `plan` and `default` cannot act unattended; `dontAsk` acts only as allowed.
PERMISSION_MODES = ("plan", "default", "dontAsk", "acceptEdits", "auto", "bypassPermissions")


class Grant(Struct, frozen=True):
    tools: tuple[str, ...]
    permission_mode: str
    folders: tuple[str, ...]
    max_budget_usd: float | None = None
    inherit_settings: bool = False

    def text(self) -> str:
        return json.dumps(asdict(self))


def inherited() -> Grant | None:
    text = os.getenv(names.GRANT)
    if not text:
        return None
    try:
        return records.of(json.loads(text), Grant)
    except ValueError:
        raise StrataError("BAD_ENVIRONMENT", f"{names.GRANT} is not a grant", "unset it") from None


def tool_name(rule: str) -> str:
    return rule.partition("(")[0].strip()


def check(
    grant: Grant | None,
    *,
    tools: tuple[str, ...] | None = None,
    permission_mode: str | None = None,
    folders: tuple[Path, ...] = (),
    max_budget_usd: float | None = None,
    inherit_settings: bool = False,
) -> None:
    """Refuses what is wider than the grant this process was started under."""
    if grant is None:
        return
    for rule in tools or ():
        if rule not in grant.tools and tool_name(rule) not in grant.tools:
            _refuse(f"the tool {rule}", f"it has {', '.join(grant.tools) or 'none'}")
    if permission_mode and PERMISSION_MODES.index(permission_mode) > PERMISSION_MODES.index(grant.permission_mode):
        _refuse(f"permission mode {permission_mode}", f"it has {grant.permission_mode}")
    for folder in folders:
        if not any(folder.resolve().is_relative_to(root) for root in grant.folders):
            _refuse(f"the folder {folder}", f"it has {', '.join(grant.folders)}")
    if inherit_settings and not grant.inherit_settings:
        _refuse("the settings of the folder", "it runs without them")
    if grant.max_budget_usd is not None and max_budget_usd is not None and max_budget_usd > grant.max_budget_usd:
        _refuse(f"a budget of {max_budget_usd} USD", f"it has {grant.max_budget_usd}")


def _refuse(what: str, has: str) -> None:
    raise StrataError(
        "WIDENING_REFUSED",
        f"an agent asked for {what}, which exceeds what it was given: {has}",
        "inside a session flags can only narrow; give it to the outermost agent",
    )
