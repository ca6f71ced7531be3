"""Calls a tool of an MCP server with a bundle, and takes what it returns for the result. The client is the one of the MCP SDK,
which comes with the agent SDK."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lib.contract import StrataError
from lib.disk import files, records

from packs.downstream import bundles, helping
from packs.downstream.contract import AgentContract
from packs.downstream.handoff import MOST_RESULT, RESULT
from packs.downstream.helping import CONTRACT, Asked


def main(folder: Path, asked: Asked) -> None:
    contract = records.read(folder / CONTRACT, AgentContract)
    try:
        text = asyncio.run(_call(folder, contract, asked))
    except StrataError:
        raise
    except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - a server may break in any way; what follows is one clear error
        raise StrataError("MCP_FAILED", f"{' '.join(asked.command[:3])}: {_first(error)}", "see agent.log") from None
    if len(text.encode()) > MOST_RESULT:
        raise StrataError(
            "TOO_LARGE", f"the tool returned more than {MOST_RESULT} bytes", "leave files in the handoff folder", final=True
        )
    if text.strip():  # or it has written its result itself
        files.write_atomic(folder / RESULT, text)


async def _call(folder: Path, contract: AgentContract, asked: Asked) -> str:
    from mcp import Client, StdioServerParameters

    environment = {name: os.environ[name] for name in os.environ if name not in ("PYTHONPATH",)}
    server = StdioServerParameters(command=asked.command[0], args=list(asked.command[1:]), env=environment, cwd=contract.folder)
    async with Client(server) as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        name = contract.execution.tool
        if name not in listed:
            raise StrataError(
                "MCP_FAILED", f"the server has no tool {name!r}", f"it has: {', '.join(listed) or 'none'}", final=True
            )
        words = {"bundle_path": str(folder / bundles.FILE), "handoff_dir": str(folder)}
        reply: Any = await client.call_tool(name, words)
    text = "\n".join(str(part.text) for part in reply.content if getattr(part, "type", "") == "text")
    if reply.is_error:  # the client does not raise
        raise StrataError("MCP_FAILED", f"the tool {name} failed: {text[:500]}", "see agent.log")
    if reply.structured_content and not _is_result(text):
        return json.dumps(reply.structured_content)
    return text


def _is_result(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _first(error: BaseException) -> str:
    inner = cast(tuple[BaseException, ...], getattr(error, "exceptions", ()))
    if inner:
        return _first(inner[0])
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    helping.run(main)
