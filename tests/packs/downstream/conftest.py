"""A finished run, contracts, and a service on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import House, Ran

HEALTH = "# Healthcare\n\nHospitals lose money when systems are down for an hour. Recovery takes days.\n"
LEGAL = "# Legal\n\nLaw firms bill by the hour and fear a breach of privilege above all.\n"
PLAYBOOKS = {
    ("healthcare", "cfo_cluster"): "# Playbook\n\nLead with the cost of one hour without records.\n",
    ("legal", "cfo_cluster"): "# Playbook\n\nLead with privilege, and with what a breach costs.\n",
}


def write_run(folder: Path) -> Path:
    """A finished run, as a manifest and files."""
    folder.mkdir(exist_ok=True)
    texts = {"health.md": HEALTH, "legal.md": LEGAL, "baseline.yaml": "voice: plain\n"}
    listed: list[dict[str, Any]] = [
        {
            "agent_name": "v",
            "type": "vertical",
            "layer": "layer_2",
            "dimensions": {"vertical": "healthcare"},
            "path": "health.md",
            "id": "v1",
        },
        {
            "agent_name": "v",
            "type": "vertical",
            "layer": "layer_2",
            "dimensions": {"vertical": "legal"},
            "path": "legal.md",
            "id": "v2",
        },
    ]
    for n, ((vertical, title), text) in enumerate(PLAYBOOKS.items()):
        texts[f"p{n}.md"] = text
        dimensions = {"vertical": vertical, "title": title}
        listed.append(
            {
                "agent_name": "p",
                "type": "playbook_2d",
                "layer": "integrations",
                "dimensions": dimensions,
                "path": f"p{n}.md",
                "id": f"p{n}",
            }
        )
    for name, text in texts.items():
        (folder / name).write_text(text)
    document = {"execution_id": "research_1", "outputs": listed, "context_files": {"baseline": "baseline.yaml"}}
    (folder / "manifest.json").write_text(json.dumps(document))
    return folder / "manifest.json"


class Trial:
    """A workspace with a run and contracts of one's own."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.workspace = house.workspace
        self.manifest = write_run(house.workspace / "up")

    def contract(self, name: str, execution: dict[str, Any], **more: Any) -> Path:
        folder = self.workspace / "mine" / name
        folder.mkdir(parents=True, exist_ok=True)
        known = {
            "name": name,
            "version": "1.0.0",
            "inputs": {"required": [{"type": "vertical"}]},
            "outputs": [{"name": "out", "path_template": "out.md"}],
            "execution": execution,
            "budget": {"max_cost_usd": 0.5, "timeout_seconds": 60},
        }
        (folder / "agent.yaml").write_text(yaml.safe_dump(known | more))
        return folder

    def script(self, name: str, body: str, **more: Any) -> Path:
        """A contract that is run by a Python program: `bundle` is what it was given, `done` says that it is done."""
        folder = self.contract(
            name, {"type": "subprocess", "command": ["python3", "{agent_dir}/run.py"], **more.pop("execution", {})}, **more
        )
        (folder / "run.py").write_text(PROGRAM.replace("BODY", body))
        return folder

    def settings(self, **known: Any) -> None:
        (self.workspace / ".strata").mkdir(exist_ok=True)
        (self.workspace / ".strata/downstream.yaml").write_text(yaml.safe_dump({"version": 1, **known}))

    def run(self, *words: str, **env: str) -> Ran:
        return self.house.json(
            "downstream", "run", "up/manifest.json", "--agents", "mine", "--session-dir", str(self.session), *words, **env
        )

    def job(self, name: str, **env: str) -> str:
        """One job by hand, which does not succeed: why. A whole run would try it twice, and takes ten times as long."""
        words = ("--input", "run=up/manifest.json", "--input", "agents=mine", "--session-dir", str(self.session))
        ran = self.house.json("downstream_agent", name, *words, **env)
        assert ran.code in (1, 11, 21), (ran.stdout, ran.stderr)
        assert not list(self.session.glob("artifacts/**/files/*"))
        return f"{ran.error['code']}: {ran.error['message']}"

    @property
    def session(self) -> Path:
        return self.house.folder / "sessions/one"

    def left(self, path: str) -> str:
        return (self.session / "artifacts/downstream/03-publish/downstream" / path).read_text()

    def listing(self) -> dict[str, Any]:
        listed = json.loads((self.session / "artifacts/downstream/03-publish/downstream.json").read_text())["agents"]
        return {one["job"]: one for one in listed}

    def why(self, job: str) -> str:
        roster = json.loads(next(self.session.glob("artifacts/downstream/02-agents/roster.json")).read_text())
        entry = next(one for one in roster["entries"] if one["key"] == job)
        return f"{entry['status']} {entry['code']}: {entry['message']}"


PROGRAM = """
import json, os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
assert str(folder) == os.environ["DOWNSTREAM_HANDOFF_DIR"]
bundle = json.loads((folder / "context_bundle.json").read_text())
result = {"schema_version": "1.0.0", "agent_name": bundle["agent_name"], "nonce": bundle["nonce"], "status": "complete", "outputs": [],
          "metrics": {"cost_usd": 0.1, "duration_seconds": 1, "tokens_used": 10}, "errors": []}

def leave(name, path, text, **dimensions):
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text)
    result["outputs"].append({"name": name, "path": path, "dimensions": dimensions})

def done():
    (folder / "result.json").write_text(json.dumps(result))

BODY
"""


@pytest.fixture
def trial(house: House) -> Trial:
    return Trial(house)


Answer = Callable[[str, str, dict[str, str], bytes], tuple[int, dict[str, str], bytes]]


class Service:
    """A service on loopback: `answer` is given method, path, headers and body. A body of chunks is sent as they come."""

    def __init__(self, answer: Any) -> None:
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {k.lower(): v for k, v in self.headers.items()}
                service.seen.append((self.command, self.path, headers, body))
                status, more, content = answer(self.command, self.path, headers, body)
                self.send_response(status)
                for name, value in more.items():
                    self.send_header(name, value)
                self.end_headers()
                for chunk in [content] if isinstance(content, bytes) else content:
                    self.wfile.write(chunk)
                    self.wfile.flush()

            do_GET = do_POST  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def serve() -> Iterator[Callable[[Any], Service]]:
    started: list[Service] = []

    def start(answer: Any) -> Service:
        started.append(Service(answer))
        return started[-1]

    yield start
    for one in started:
        one.close()
