"""A scripted model on loopback: speaks enough of the messages API to drive the real SDK and CLI without a network.

A script is a function from a `Request` to a `Reply`. It keeps no state of its own: which turn it is follows from the
conversation, so parallel agents and resumed sessions get the right answer whatever order they come in.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Block = dict[str, Any]


def text(words: str) -> Block:
    return {"type": "text", "text": words}


def tool(name: str, **arguments: Any) -> Block:
    return {"type": "tool_use", "name": name, "input": arguments}


@dataclass(frozen=True)
class Reply:
    blocks: tuple[Block, ...] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    hang_seconds: float = 0  # say nothing for this long before answering
    cut: bool = False  # close the connection in the middle of the stream
    output_tokens: int = 20


def say(*blocks: Block | str, **options: Any) -> Reply:
    return Reply(tuple(text(b) if isinstance(b, str) else b for b in blocks), **options)


def fail(status: int, **headers: str) -> Reply:
    return Reply(status=status, headers={k.replace("_", "-"): v for k, v in headers.items()})


@dataclass(frozen=True)
class Request:
    """One call of the model, seen the way a script wants to branch on it."""

    body: dict[str, Any]
    headers: dict[str, str]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body.get("messages", [])

    @property
    def start(self) -> int:
        """Where the present task begins: in a session that is continued, at the last message that gives an agent a task."""
        asked = [n for n, m in enumerate(self.messages) if m["role"] == "user" and gives_a_task(m["content"])]
        return asked[-1] if asked else 0

    @property
    def turn(self) -> int:
        """0 for the first answer to the present task; where tasks are given in other words, the count goes on."""
        return sum(m["role"] == "assistant" for m in self.messages[self.start :])

    @property
    def system(self) -> str:
        return flatten(self.body.get("system", ""))

    @property
    def prompt(self) -> str:
        return flatten(next((m["content"] for m in self.messages[self.start :] if m["role"] == "user"), ""))

    @property
    def last(self) -> str:
        return flatten(self.messages[-1]["content"]) if self.messages else ""

    @property
    def heard(self) -> str:
        """All that came back since the prompt: tool results, and what the CLI adds to them."""
        return "\n".join(flatten(m["content"]) for m in self.messages[self.start + 1 :] if m["role"] == "user")

    @property
    def tools(self) -> list[str]:
        return [t["name"] for t in self.body.get("tools", [])]

    def path(self, name: str) -> str:
        """The path the prompt gives for a named output or input (`- name: path`)."""
        found = re.search(rf"^- {re.escape(name)}: `?([^`\n]+?)`?(?: \(.*)?$", self.prompt, re.M)
        if not found:
            raise KeyError(f"the prompt names no path for {name!r}:\n{self.prompt}")
        return found.group(1)


def gives_a_task(content: Any) -> bool:
    """Whether a message is a prompt of ours (`/agent ACTION …`), not what a tool gave back."""
    if isinstance(content, list) and any(block.get("type") == "tool_result" for block in content):
        return False
    return re.search(r"^/[a-z][a-z0-9-]*( |$)", flatten(content), re.M) is not None


def flatten(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts: list[str] = []
    for block in content or []:
        parts.append(block.get("text") or flatten(block.get("content", "")))
    return "\n".join(parts)


Script = Callable[[Request], Reply]


def turns(*replies: Reply | Callable[[Request], Reply]) -> Script:
    """The nth answer is the nth reply; the last one repeats."""

    def script(request: Request) -> Reply:
        reply = replies[min(request.turn, len(replies) - 1)]
        return reply(request) if callable(reply) else reply

    return script


def by_agent(**scripts: Script) -> Script:
    """Chooses by the slash line the prompt starts with: `/name ACTION …`; the key may be `name` or `name_ACTION`."""
    table = {key.replace("__", "-"): script for key, script in scripts.items()}

    def script(request: Request) -> Reply:
        line = next((x for x in request.prompt.splitlines() if x.startswith("/")), "")
        words = line[1:].split()
        for key in ("_".join(words[:2]), words[0] if words else "", "default"):
            if key in table:
                return table[key](request)
        return fail(400)

    return script


class ScriptedModel:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Request] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def environment(self, config_dir: str) -> dict[str, str]:
        """What an agent's environment needs to talk to this model and to nothing else."""
        return {
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "dummy-key-of-the-scripted-model",
            "CLAUDE_CONFIG_DIR": config_dir,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    def start(self) -> ScriptedModel:
        self.thread.start()
        return self

    def stop(self) -> None:
        self._stopping.set()
        self.server.shutdown()
        self.server.server_close()

    def _handler(model) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - the handler class needs its own `self`
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def do_HEAD(self) -> None:
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                if "/messages" not in self.path or "count_tokens" in self.path:
                    return self._json(200, {"input_tokens": 10})
                request = Request(json.loads(body), {k.lower(): v for k, v in self.headers.items()})
                with model._lock:
                    model.requests.append(request)
                try:
                    self._answer(request, model.script(request))
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the client gave up: a stopped agent, not a fault of the model

            def _json(self, status: int, document: dict[str, Any], headers: dict[str, str] | None = None) -> None:
                data = json.dumps(document).encode()
                self.send_response(status)
                for key, value in {"content-type": "application/json", **(headers or {})}.items():
                    self.send_header(key, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def _answer(self, request: Request, reply: Reply) -> None:
                if reply.hang_seconds:
                    model._stopping.wait(reply.hang_seconds)
                if reply.status != 200:
                    kind = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}
                    error = {"type": kind.get(reply.status, "api_error"), "message": f"scripted {reply.status}"}
                    return self._json(reply.status, {"type": "error", "error": error}, reply.headers)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                self.close_connection = True
                for number, event in enumerate(stream(request, reply)):
                    if reply.cut and number == 3:
                        self.connection.close()
                        return
                    self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
                    self.wfile.flush()

        return Handler


def stream(request: Request, reply: Reply) -> Iterator[dict[str, Any]]:
    identity = f"msg_{time.monotonic_ns():024d}"
    message = {
        "id": identity,
        "type": "message",
        "role": "assistant",
        "model": request.body.get("model", "scripted"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 100, "output_tokens": 1},
    }
    yield {"type": "message_start", "message": message}
    for index, block in enumerate(reply.blocks):
        if block["type"] == "text":
            yield {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}
            yield {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": block["text"]}}
        else:
            start = {"type": "tool_use", "id": f"toolu_{time.monotonic_ns():020d}", "name": block["name"], "input": {}}
            yield {"type": "content_block_start", "index": index, "content_block": start}
            partial = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            yield {"type": "content_block_delta", "index": index, "delta": partial}
        yield {"type": "content_block_stop", "index": index}
    reason = "tool_use" if any(b["type"] == "tool_use" for b in reply.blocks) else "end_turn"
    usage = {"output_tokens": reply.output_tokens}
    yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
    yield {"type": "message_stop"}


@contextmanager
def scripted(script: Script) -> Iterator[ScriptedModel]:
    model = ScriptedModel(script).start()
    try:
        yield model
    finally:
        model.stop()
