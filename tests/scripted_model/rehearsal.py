"""The agent SDK in rehearsal: the same scripted model and the same messages, without the CLI, for claims above layer 0.

The real CLI costs most of a second per session, whatever is said in it. Tests of what stands on top of spawn use this instead;
spawn itself, what agents are refused, and everything about time, login and sandboxes use the real one. `STRATA_REAL_CLI=1` has
every test use the real one, and `tests/tools/test_rehearsal.py` compares the two. It knows as much of the SDK as spawn uses.
"""

from __future__ import annotations

import asyncio
import http.client
import importlib.util
import json
import os
import re
import subprocess
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]
__file__ = str(importlib.util.find_spec("claude_agent_sdk").origin)  # type: ignore[union-attr] # spawn looks for the CLI beside the SDK
PRICES = {
    "haiku": (0.1, 0.5),
    "sonnet": (2.0, 10.0),
    "opus": (4.0, 20.0),
}  # USD per million tokens in and out, as the CLI has them
STRUCTURED = "StructuredOutput"
TRIES = 5  # at structured output


class ClaudeAgentOptions(SimpleNamespace):
    pass


class HookMatcher(SimpleNamespace):
    pass


@dataclass
class TextBlock:
    text: str


@dataclass
class ToolUseBlock:
    id: str
    name: str
    input: Json


@dataclass
class ToolResultBlock:
    tool_use_id: str
    content: str
    is_error: bool | None = None


@dataclass
class SystemMessage:
    subtype: str
    data: Json


@dataclass
class AssistantMessage:
    content: list[TextBlock | ToolUseBlock]
    model: str
    error: str | None = None


@dataclass
class UserMessage:
    content: list[ToolResultBlock]


@dataclass
class ResultMessage:
    subtype: str
    num_turns: int
    session_id: str
    total_cost_usd: float
    result: str | None
    structured_output: Any
    model_usage: dict[str, Json]
    is_error: bool = False
    permission_denials: list[Json] = field(default_factory=list)
    errors: list[str] | None = None
    api_error_status: int | None = None


class ResultError(Exception):
    pass


class Refused(Exception):  # noqa: N818 - not an error: the model reads it
    """A tool call that is not let through, or fails: the model is told why."""

    def __init__(self, why: str, denied: bool = False) -> None:
        super().__init__(why)
        self.denied = denied


async def query(*, prompt: str, options: ClaudeAgentOptions) -> AsyncIterator[Any]:
    talk = _Session(prompt, options)
    yield SystemMessage("init", {"session_id": talk.id, "cwd": str(options.cwd), "tools": talk.tools, "model": talk.model})
    while talk.end is None:
        talk.keep()  # as the CLI does: one that is cut off can be resumed
        status, blocks = await talk.ask_model()
        if status != 200:
            talk.end = talk.result("success", is_error=True, api_error_status=status, result=f"API Error: {status} scripted")
            yield talk.end
            raise ResultError(f"API Error: {status}")
        yield AssistantMessage(blocks, talk.model)
        results = [await talk.use(block) for block in blocks if isinstance(block, ToolUseBlock)]
        if results:
            talk.hear(results)
            yield UserMessage(results)
        talk.decide(blocks)
    talk.keep()
    yield talk.end
    if talk.end.subtype != "success":
        raise ResultError(talk.end.subtype)


class _Session:
    def __init__(self, prompt: str, options: ClaudeAgentOptions) -> None:
        self.options = options
        self.model = next((f"claude-{name}-5-5" for name in PRICES if name in options.model), options.model)
        self.id: str = options.resume or options.session_id
        self.messages: list[Json] = json.loads(self.file.read_text()) if options.resume else []
        self.messages.append({"role": "user", "content": [{"type": "text", "text": prompt}]})
        self.schema: Json | None = options.output_format["schema"] if options.output_format else None
        self.tools = [*options.tools, *([STRUCTURED] if self.schema else [])]
        self.turns, self.tokens, self.denials = 0, [0, 0], []
        self.structured: Any = None
        self.failed_tries = 0
        self.nudged = False
        self.end: ResultMessage | None = None

    @property
    def file(self) -> Path:
        return Path(os.environ["CLAUDE_CONFIG_DIR"]) / "rehearsed" / f"{self.id}.json"

    def keep(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.messages))

    # The model

    async def ask_model(self) -> tuple[int, list[TextBlock | ToolUseBlock]]:
        system = self.options.system_prompt
        body = {
            "model": self.model,
            "system": [{"type": "text", "text": Path(system["path"]).read_text() if system else ""}],
            "messages": self.messages,
            "tools": [{"name": name} for name in self.tools],
            "stream": True,
        }
        status, data = await _without_waiting(lambda: _post(os.environ["ANTHROPIC_BASE_URL"], body))
        if status != 200:
            return status, []
        blocks = _read_stream(data, self.tokens)
        self.turns += 1
        said = [vars(b) | {"type": "text" if isinstance(b, TextBlock) else "tool_use"} for b in blocks]
        self.messages.append({"role": "assistant", "content": said})
        return status, blocks

    def hear(self, results: list[ToolResultBlock]) -> None:
        self.messages.append({"role": "user", "content": [{"type": "tool_result", **vars(r)} for r in results]})

    def decide(self, blocks: list[TextBlock | ToolUseBlock]) -> None:
        """Whether the session goes on."""
        if self.structured is not None:
            self.turns += 1
            self.end = self.result(
                "success", result=json.dumps(self.structured, separators=(",", ":")), structured_output=self.structured
            )
        elif self.failed_tries >= TRIES:
            self.end = self.result("error_max_structured_output_retries", errors=["no valid structured output"])
        elif any(isinstance(b, ToolUseBlock) for b in blocks):
            if self.options.max_turns and self.turns >= self.options.max_turns:
                self.end = self.result("error_max_turns")
        elif self.schema and not self.nudged:
            self.nudged = True
            self.messages.append({"role": "user", "content": [{"type": "text", "text": f"Call the {STRUCTURED} tool."}]})
        else:
            said = "\n".join(b.text for b in blocks if isinstance(b, TextBlock))
            self.end = self.result("success", result=said)

    def result(self, subtype: str, **known: Any) -> ResultMessage:
        price = next((PRICES[name] for name in PRICES if name in self.model), (0.0, 0.0))
        usd = sum(count * each / 1e6 for count, each in zip(self.tokens, price, strict=True))
        usage = {"inputTokens": self.tokens[0], "outputTokens": self.tokens[1], "costUSD": usd}
        fields = {"result": None, "structured_output": None, "permission_denials": self.denials, **known}
        return ResultMessage(subtype, self.turns, self.id, usd, model_usage={self.model: usage}, **fields)

    # Its tools

    async def use(self, block: ToolUseBlock) -> ToolResultBlock:
        try:
            await self.allow(block)
            return ToolResultBlock(block.id, await _without_waiting(lambda: getattr(self, f"_{block.name}")(block.input)))
        except Refused as why:
            if why.denied:
                self.denials.append({"tool_name": block.name, "tool_use_id": block.id, "tool_input": block.input})
            return ToolResultBlock(block.id, str(why), True)

    async def allow(self, block: ToolUseBlock) -> None:
        if block.name not in self.tools:
            raise Refused(f"Error: No such tool available: {block.name}")
        for matcher in (self.options.hooks or {}).get("PreToolUse", ()):
            if re.fullmatch(matcher.matcher, block.name):
                for hook in matcher.hooks:
                    asked = {"tool_name": block.name, "tool_input": block.input}
                    said = (await hook(asked, block.id, None)).get("hookSpecificOutput", {})
                    if said.get("permissionDecision") == "deny":
                        raise Refused(said["permissionDecisionReason"])
        rules: list[str] = self.options.allowed_tools
        if block.name in ("Write", "Edit", "NotebookEdit"):
            place = str(self.path(block.input))
            globs = [rule[len("Edit(/") : -1] for rule in rules if rule.startswith("Edit(")]
            allowed = any(_matches(place, pattern) for pattern in globs)
        elif block.name == "Bash":
            words = [rule[len("Bash(") : -1].removesuffix(":*") for rule in rules if rule.startswith("Bash(")]
            allowed = "Bash" in rules or any(block.input["command"].startswith(word) for word in words)
        else:
            allowed = block.name in ("Read", "Glob", "Grep", STRUCTURED) or block.name in rules
        if not allowed:
            raise Refused(f"Permission to use {block.name} has been denied.", denied=True)

    def path(self, given: Json) -> Path:
        return Path(self.options.cwd) / str(given.get("file_path") or given.get("notebook_path") or ".")

    def _Write(self, given: Json) -> str:  # noqa: N802 - the tool's own name
        path = self.path(given)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(given["content"])
        return f"File created successfully at: {path}"

    def _Edit(self, given: Json) -> str:  # noqa: N802
        path = self.path(given)
        text = path.read_text() if path.exists() else ""
        if given["old_string"] not in text:
            raise Refused("String to replace not found in file.")
        path.write_text(text.replace(given["old_string"], given["new_string"], -1 if given.get("replace_all") else 1))
        return f"The file {path} has been updated."

    def _Read(self, given: Json) -> str:  # noqa: N802
        path = self.path(given)
        if not path.is_file():
            raise Refused("File does not exist.")
        return "\n".join(f"{n}\t{line}" for n, line in enumerate(path.read_text(errors="replace").splitlines(), 1))

    def _Glob(self, given: Json) -> str:  # noqa: N802
        return "\n".join(str(p) for p in Path(given.get("path") or self.options.cwd).glob(given["pattern"]))

    def _Grep(self, given: Json) -> str:  # noqa: N802
        places = [p for p in Path(given.get("path") or self.options.cwd).rglob("*") if p.is_file()]
        return "\n".join(str(p) for p in places if re.search(given["pattern"], p.read_text(errors="replace")))

    def _Bash(self, given: Json) -> str:  # noqa: N802
        argv = ["bash", "-c", given["command"]]
        done = subprocess.run(
            argv, cwd=self.options.cwd, env={**os.environ, **self.options.env}, capture_output=True, check=False
        )
        said = (done.stdout + done.stderr).decode("utf-8", "replace").strip()
        if done.returncode:
            raise Refused(f"Exit code {done.returncode}\n{said}")
        return said

    def _StructuredOutput(self, given: Json) -> str:  # noqa: N802
        import jsonschema

        try:
            jsonschema.validate(given, self.schema)
        except jsonschema.ValidationError as error:
            self.failed_tries += 1
            raise Refused(f"Output does not match required schema: {error.message}") from None
        self.structured = given
        return "Structured output provided successfully"


def _matches(place: str, pattern: str) -> bool:
    from lib.disk import globs

    return globs.matches(place, [pattern])


async def _without_waiting(work: Any) -> Any:
    """What blocks is done beside the loop, and left behind when the tool is asked to stop."""
    from lib.process import processes

    done: list[Any] = []

    def run() -> None:
        try:
            done.append((work(), None))
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            done.append((None, error))

    threading.Thread(target=run, daemon=True).start()
    while not done:
        if processes.stopping.is_set():
            raise ResultError("stopped")
        await asyncio.sleep(0.002)
    value, error = done[0]
    if error:
        raise error
    return value


def _post(address: str, body: Json) -> tuple[int, bytes]:
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=600)
    try:
        connection.request("POST", "/v1/messages", json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _read_stream(data: bytes, tokens: list[int]) -> list[TextBlock | ToolUseBlock]:
    found: list[TextBlock | ToolUseBlock] = []
    for line in data.decode().splitlines():
        event = json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else {}
        kind = event.get("type")
        if kind == "message_start":
            tokens[0] += event["message"]["usage"]["input_tokens"]
        elif kind == "message_delta":
            tokens[1] += event["usage"]["output_tokens"]
        elif kind == "content_block_start":
            block = event["content_block"]
            found.append(TextBlock("") if block["type"] == "text" else ToolUseBlock(block["id"], block["name"], {}))
        elif kind == "content_block_delta":
            last, delta = found[-1], event["delta"]
            if isinstance(last, TextBlock):
                last.text += delta["text"]
            else:
                last.input = json.loads(delta["partial_json"])
    return found
