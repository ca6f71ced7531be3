"""Reaching a Temporal server: by its client's own settings, with payloads that are encrypted where a key is set, and the few
numbers that say when work is lost."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

import msgspec
from cryptography.fernet import Fernet, InvalidToken
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.converter import DataConverter, PayloadCodec
from temporalio.envconfig import ClientConfigProfile
from temporalio.service import RPCError, RPCStatusCode

from lib.contract import StrataError
from lib.machines.address import Address, Shown, queue

ACTIVITY = "strata"
PRESENCE = "strata-workers"  # the queue on which every worker shows itself, whatever its house
HEARTBEAT_SECONDS = 5.0
RETRY_SECONDS = HEARTBEAT_SECONDS + 1.0  # the lease of whoever was lost has run out by then
LONGEST = timedelta(days=30)  # the executor keeps the clock of the work itself, and it may be parked
CONNECT_SECONDS = 15.0
KEY = "STRATA_PAYLOAD_KEY"
_SEALED = b"binary/strata"
T = TypeVar("T")


class Sealing(PayloadCodec):
    """Payloads that only those with the key can read, or make."""

    def __init__(self, key: Fernet) -> None:
        self._key = key

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload(metadata={"encoding": _SEALED}, data=self._key.encrypt(p.SerializeToString())) for p in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload.FromString(self._key.decrypt(self._sealed(p))) for p in payloads]

    def _sealed(self, payload: Payload) -> bytes:
        if dict(payload.metadata) != {"encoding": _SEALED}:
            raise InvalidToken  # somebody without the key
        return payload.data


def _key() -> Fernet | None:
    text = os.getenv(KEY, "")
    try:
        return Fernet(text) if text else None
    except ValueError:
        hint = "python -c 'from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())' makes one"
        raise StrataError("BAD_ENVIRONMENT", f"{KEY} holds no key", hint) from None


def channel(facts: str, place: str, needs: tuple[str, ...]) -> str:
    """The queue of machines with this house and these labels. Those with another key do not meet there."""
    key = os.getenv(KEY, "")
    return queue(facts + (hashlib.sha256(key.encode()).hexdigest()[:6] if key else ""), place, needs)


async def connect(address: Address, identity: str) -> Client:
    """TLS and the API key come from the Temporal client's own settings: its file, and TEMPORAL_* variables."""
    try:
        config = ClientConfigProfile.load().to_client_connect_config()
        config["target_host"], config["namespace"] = address.target, address.namespace
        key = _key()
        converter = replace(DataConverter.default, payload_codec=Sealing(key)) if key else DataConverter.default
        client = await asyncio.wait_for(
            Client.connect(**config, identity=identity, data_converter=converter), timeout=CONNECT_SECONDS
        )
        named = DescribeNamespaceRequest(namespace=address.namespace)
        known = await client.workflow_service.describe_namespace(named, timeout=timedelta(seconds=CONNECT_SECONDS))
    except RPCError as error:
        raise _refused(address, error) from None
    except (RuntimeError, TimeoutError, OSError, ValueError) as error:
        message = f"no Temporal server answers at {address.target}: {_reason(error)}"
        hint = "is it running, and is it this address? TLS and an API key come from TEMPORAL_* variables"
        raise StrataError("BACKEND_UNREACHABLE", message, hint) from None
    if not known.namespace_info.capabilities.standalone_activities:
        message = f"the Temporal server at {address.target} runs no standalone activities"
        raise StrataError("BACKEND_TOO_OLD", message, "Temporal Server 1.31 or newer does (the program temporal: 1.7 or newer)")
    return client


def _reason(error: Exception) -> str:
    """What the client says, in the words of the system where they are in it."""
    if isinstance(error, TimeoutError):
        return f"it said nothing within {CONNECT_SECONDS:g} s"
    text = str(error)
    return next(reversed(re.findall(r'(?:message|error): \\*"([^"\\]+)', text)), text[:200] or type(error).__name__)


def _refused(address: Address, error: RPCError) -> StrataError:
    if error.status == RPCStatusCode.NOT_FOUND:
        message = f"the Temporal server at {address.target} has no namespace {address.namespace!r}"
        return StrataError("BACKEND_UNREACHABLE", message, f"temporal operator namespace create {address.namespace}")
    message = f"the Temporal server at {address.target} answered: {error.message}"
    return StrataError("BACKEND_UNREACHABLE", message, "TLS and the API key come from TEMPORAL_* variables")


async def reach(call: Awaitable[T]) -> T:
    """What the server answers. Of one that hangs the client says that the call was cancelled, which nobody here has done."""
    try:
        return await call
    except asyncio.CancelledError:
        this = asyncio.current_task()
        if this is None or this.cancelling():
            raise
        raise RPCError("no answer in time", RPCStatusCode.DEADLINE_EXCEEDED, b"") from None


async def present(client: Client) -> list[Shown]:
    """The workers that were there in the last minutes, whatever their house."""
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=PRESENCE),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
    )
    found = await reach(client.workflow_service.describe_task_queue(request))
    return [shown for text in sorted({p.identity for p in found.pollers}) if (shown := _shown(text))]


def _shown(identity: str) -> Shown | None:
    try:
        return msgspec.json.decode(identity.encode(), type=Shown)
    except msgspec.MsgspecError:
        return None  # none of ours


def is_away(error: RPCError) -> bool:
    """Whether the server may be back in a moment."""
    gone = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.RESOURCE_EXHAUSTED)
    return error.status in (*gone, RPCStatusCode.CANCELLED, RPCStatusCode.UNKNOWN, RPCStatusCode.INTERNAL, RPCStatusCode.ABORTED)
