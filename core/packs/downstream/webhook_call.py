"""Posts a bundle to a service and waits for its result. Nothing is reached that the settings do not name.

The host is on the list, the scheme is https, and the address that was checked is the one that is connected to (`lib/web`); no
redirect is followed; the address to poll has the same origin; bodies and waiting are bounded. Content travels in the request,
because paths mean nothing elsewhere. A service that sends a secret back is not believed.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lib.contract import Json, StrataError
from lib.disk import files, records, redact
from lib.web.door import Door, Page
from lib.web.rules import Rules, refuse

from packs.downstream import bundles, helping, hosts
from packs.downstream.bundles import ContextBundle, Given
from packs.downstream.contract import AgentContract
from packs.downstream.handoff import MOST_RESULT, RESULT
from packs.downstream.helping import CONTRACT, Asked

LONGEST_WAIT = 60.0  # between two looks, whatever the service asks for
MOST_SENT = 50_000_000
_REFERENCE = re.compile(r"\$\{([^}]*)\}")


def main(folder: Path, asked: Asked) -> None:
    contract = records.read(folder / CONTRACT, AgentContract)
    bundle = bundles.read(folder / bundles.FILE)
    headers, secrets = resolved(contract)
    redact.remember(*secrets)
    host, url = hosts.allowed(contract.execution.url, asked.hosts, asked.insecure)
    door = _door(asked, host, contract)
    body = payload(bundle, Path(asked.session).name)
    if sum(len(v) for v in _contents(body)) > MOST_SENT:
        raise StrataError(
            "TOO_LARGE", f"the bundle is larger than {MOST_SENT} bytes", "narrow the inputs of the contract", final=True
        )
    page = door.post(url, f"{contract.name}: the bundle", body, {"Idempotency-Key": bundle.nonce, **headers})
    page = _believed(page, secrets)
    deadline = time.monotonic() + contract.budget.timeout_seconds
    while _waits(page):
        poll = _poll_url(page, url)
        pause = min(max(_retry_after(page), contract.execution.poll_seconds), LONGEST_WAIT)
        if time.monotonic() + pause > deadline:
            raise StrataError("TIMEOUT", f"{contract.name}: the service is not done in its time", "raise timeout_seconds")
        time.sleep(0 if asked.driver == "replay" else pause)
        page = _believed(door.get(poll, f"{contract.name}: whether it is done", headers), secrets)
        url = poll
    page.json()  # or an error that says so
    files.write_atomic(folder / RESULT, page.content)


def resolved(contract: AgentContract) -> tuple[dict[str, str], list[str]]:
    """The headers with their variables in them, and the secrets these are. Only what the contract lists is looked up."""
    secrets: list[str] = []

    def value(found: re.Match[str]) -> str:
        name = found[1]
        known = os.environ.get(name, "") if name in contract.execution.env else ""
        if not known:
            raise StrataError(
                "MISSING_SECRET", f"{contract.name} needs the variable {name}, which is not set", f"export {name}=…", final=True
            )
        secrets.append(known)
        return known

    return {name: _REFERENCE.sub(value, text) for name, text in contract.execution.headers.items()}, secrets


def _door(asked: Asked, host: str, contract: AgentContract) -> Door:
    rules = Rules(
        schemes=("https", "http") if asked.insecure else ("https",),
        hosts=(host,),
        private=(host,) if asked.private else (),
        robots=False,  # it is ours to ask: the user has named it
        delay_seconds=0.0,
        timeout_seconds=contract.budget.timeout_seconds,
        max_bytes=MOST_RESULT,
        max_redirects=0,
        max_wait_seconds=LONGEST_WAIT,
        ca=os.environ.get("SSL_CERT_FILE", ""),
    )
    call = SimpleNamespace(
        driver=asked.driver,
        options=SimpleNamespace(fixtures=asked.fixtures),
        session=SimpleNamespace(folder=Path(asked.session)),
        report=lambda status, detail=None: print(f"{status}: {detail}", file=sys.stderr),  # type: ignore[reportUnknownLambdaType]
    )
    return Door(cast(Any, call), Path(asked.attempt) / "out", rules)


def payload(bundle: ContextBundle, session: str) -> Json:
    """The bundle as it travels: content and no paths of this machine. A run that names itself is told by its nonce alone, so that
    what was recorded of it can be replayed."""

    def given(one: Given) -> Json:
        return {"name": one.name, "dimensions": one.dimensions, "content": one.content}

    outputs = {
        key: [
            {
                "agent_name": one.agent_name,
                "type": one.type,
                "layer": one.layer,
                "dimensions": one.dimensions,
                "path": one.path,
                "content": one.content,
            }
            for one in found
        ]
        for key, found in bundle.research_outputs.items()
    }
    return {
        "schema_version": bundle.schema_version,
        "agent_name": bundle.agent_name,
        "execution_id": bundle.execution_id if bundle.execution_id.partition("/")[0] != session else "",
        "nonce": bundle.nonce,
        "research_outputs": outputs,
        "context_files": {name: given(one) for name, one in bundle.context_files.items()},
        "external_data": {name: given(one) for name, one in bundle.external_data.items()},
        "downstream_outputs": {name: [given(one) for one in made] for name, made in bundle.downstream_outputs.items()},
        "dimensions": bundle.dimensions,
        "job": bundle.job,
        "absent": list(bundle.absent),
        "model": bundle.model,
        "budget": bundle.budget,
        "config": bundle.config,
    }


def _contents(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for inner in cast(Json, value).values() for text in _contents(inner)]
    if isinstance(value, list):
        return [text for inner in cast(list[Any], value) for text in _contents(inner)]
    return [value] if isinstance(value, str) else []


def _believed(page: Page, secrets: list[str]) -> Page:
    content = page.content
    if any(secret.encode() in content for secret in secrets if len(secret) >= redact.LEAST_NAMED):
        page.path.unlink()  # what is kept as evidence is kept as it came
        raise StrataError("SECRET_ECHOED", "the service sent a secret of ours back", "it is not to be used", final=True)
    return page.require()


def _said(page: Page) -> Json:
    said = page.json()
    return cast(Json, said) if isinstance(said, dict) else {}


def _waits(page: Page) -> bool:
    return page.evidence.status == 202 or _said(page).get("status") in ("accepted", "pending", "running", "in_progress")


def _poll_url(page: Page, asked: str) -> str:
    import httpx2

    said = _said(page).get("poll_url")
    base = httpx2.URL(asked)
    url = base.join(said) if isinstance(said, str) else base
    if not isinstance(said, str) and page.evidence.method == "POST":
        raise StrataError(
            "BAD_RESULT", "the service accepted the bundle, but named no poll_url", "fix the service: it must name one"
        )
    if (url.scheme, url.raw_host, url.port, bool(url.userinfo)) != (base.scheme, base.raw_host, base.port, False):
        raise refuse(
            f"the service asks to be polled at {url.scheme}://{url.host}, another place than its own",
            "the same origin, and no other",
        )
    return str(url)


def _retry_after(page: Page) -> float:
    from lib.web import manners

    return manners.retry_after(page.evidence.headers.get("retry-after", ""))


if __name__ == "__main__":
    helping.run(main)
