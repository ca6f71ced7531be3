"""Webhooks, tried the way an attacker would: where they may go, what is sent, and what of the answer is believed."""

from __future__ import annotations

import gzip
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lib.contract import StrataError
from lib.web.door import Door
from packs.downstream import hosts as hosts_file
from packs.downstream import webhook_call
from packs.downstream.contract import AgentContract, Execution, Inputs, OutputSpec
from packs.downstream.helping import Asked
from support import some

SECRET = "s3cr3t-key-0123456789"


def asked(*hosts: str, **more: Any) -> Asked:
    return Asked(hosts=hosts, **more)


@pytest.mark.parametrize(
    ("url", "hosts", "says"),
    [
        ("https://agents.example.com/x", (), "not on the list"),  # an empty list allows nothing
        ("https://agents.example.com/x", ("example.com",), "not on the list"),
        ("https://evilexample.com/x", ("*.example.com",), "not on the list"),  # at a dot, not in the middle of a word
        ("https://example.com/x", ("*.example.com",), "not on the list"),
        ("https://example.com.evil.test/x", ("example.com",), "not on the list"),
        ("http://example.com/x", ("example.com",), "is https"),
        ("HTTP://example.com/x", ("example.com",), "is https"),
        ("ftp://example.com/x", ("example.com",), "is https"),
        ("https//example.com/x", ("example.com",), "is https"),
        ("https://user:word@example.com/x", ("example.com",), "name or password"),
        ("https://example.com@evil.test/x", ("example.com",), "name or password"),
        ("https://evil.test#@example.com/", ("example.com",), "not on the list"),
        ("https://evil.test\\@example.com/", ("example.com",), ""),
        ("https:///x", ("example.com",), ""),
    ],
)
def test_where_a_webhook_may_not_go(url: str, hosts: tuple[str, ...], says: str) -> None:
    with pytest.raises(StrataError) as raised:
        hosts_file.allowed(url, hosts, False)
    assert raised.value.code == "WEB_REFUSED" and says in raised.value.message, raised.value.message


@pytest.mark.parametrize(
    ("url", "pattern", "host"),
    [
        ("https://Agents.Example.COM/x", "agents.example.com", "agents.example.com"),
        ("https://agents.example.com./x", "agents.example.com", "agents.example.com"),  # a trailing dot is the same place
        ("https://a.b.example.com/x", "*.Example.com.", "a.b.example.com"),
        ("https://bücher.example/x", "xn--bcher-kva.example", "xn--bcher-kva.example"),
    ],
)
def test_a_host_is_compared_in_one_spelling(url: str, pattern: str, host: str) -> None:
    found, used = hosts_file.allowed(url, (pattern,), False)
    assert found == host and used.startswith(f"https://{host}/")


DISGUISED = [
    "127.0.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "0x7f.1", "127.1", "10.0.0.1", "192.168.1.1", "172.16.0.1",
    "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]", "[2001:0:7f00:1::80ff:fffe]", "[fe80::1]", "[fc00::1]", "[ff02::1]", "[::]",
]  # fmt: skip


def door(host: str, tmp_path: Path, **more: Any) -> Door:
    known = asked(host, session=str(tmp_path), attempt=str(tmp_path / "attempt-1"), **more)
    contract = AgentContract("a", "1.0.0", Inputs(), (OutputSpec("o", "o.md"),), Execution("webhook"))
    return webhook_call._door(known, host, contract)


@pytest.mark.parametrize("host", DISGUISED)
def test_an_address_that_is_not_public_is_not_reached_however_it_is_written(tmp_path: Path, host: str) -> None:
    """Even where somebody has put it on the list."""
    with pytest.raises(StrataError) as raised:
        found, url = hosts_file.allowed(f"https://{host}/x", (host.strip("[]"), host), False)
        door(found, tmp_path).post(url, "trying", {})
    assert raised.value.code in ("WEB_REFUSED", "UNREACHABLE"), raised.value.message


def test_a_name_that_leads_elsewhere_the_second_time_is_looked_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Any
) -> None:
    """The address that was checked is the one connected to: a name that answers with a public address first is not asked again."""
    looked: list[str] = []
    real = socket.getaddrinfo

    def lookup(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        if host != "rebind.test":
            return real(host, port, *rest, **more)
        looked.append(host)
        address = "198.51.100.1" if len(looked) == 1 else "127.0.0.1"  # TEST-NET: nobody answers there
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    service = serve(lambda *_: (200, {}, b"{}"))
    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    port = service.url.rpartition(":")[2]
    with pytest.raises(StrataError):
        door("rebind.test", tmp_path, insecure=True).post(f"http://rebind.test:{port}/x", "trying", {})
    assert looked == ["rebind.test"] and not service.seen


# Through a run


def result(body: bytes, text: str = "# By webhook\n", **more: Any) -> bytes:
    given = json.loads(body)
    answer = {"agent_name": given["agent_name"], "nonce": given["nonce"], "status": "complete"}
    answer |= {"outputs": [{"name": "out", "content": text}], "metrics": {"cost_usd": 0.2}} | more
    return json.dumps(answer).encode()


def hooked(trial: Any, url: str, **more: Any) -> None:
    trial.settings(webhook_allowed_hosts=["127.0.0.1"], webhook_allow_insecure=True, webhook_allow_private=True)
    headers = {"Authorization": "Bearer ${HOOK_KEY}"}
    execution = {"type": "webhook", "url": url, "headers": headers, "env": ["HOOK_KEY"], "poll_seconds": 0.05, **more}
    trial.contract("hook", execution, budget={"max_cost_usd": 0.5, "timeout_seconds": 20})


def test_a_service_answers_at_once(trial: Any, serve: Any) -> None:
    service = serve(lambda method, path, headers, body: (200, {"content-type": "application/json"}, result(body)))
    hooked(trial, f"{service.url}/make")
    ran = trial.run(HOOK_KEY=SECRET)
    assert ran.code == 0, ran.stderr
    assert trial.left("hook/out.md") == "# By webhook\n"
    method, _, headers, body = service.seen[0]
    assert method == "POST" and headers["authorization"] == f"Bearer {SECRET}" and len(headers["idempotency-key"]) == 32
    sent = json.loads(body)
    assert "Hospitals lose money" in sent["research_outputs"]["vertical"][0]["content"]  # content travels, paths do not
    assert str(trial.workspace) not in body.decode()
    everything = b"".join(p.read_bytes() for p in trial.session.rglob("*") if p.is_file())
    assert SECRET.encode() not in everything and SECRET not in ran.stdout + ran.stderr


def test_a_service_that_takes_its_time_is_polled_at_its_own_origin(trial: Any, serve: Any) -> None:
    bodies: list[bytes] = []

    def answer(method: str, path: str, headers: dict[str, str], body: bytes) -> Any:
        if method == "POST":
            bodies.append(body)
            return 202, {}, b'{"poll_url": "/jobs/1"}'
        if len(service.seen) < 4:
            return 200, {"retry-after": "0"}, b'{"status": "running"}'
        return 200, {}, result(bodies[0])

    service = serve(answer)
    hooked(trial, f"{service.url}/make")
    ran = trial.run(HOOK_KEY=SECRET)
    assert ran.code == 0, ran.stderr
    assert [seen[1] for seen in service.seen] == ["/make", "/jobs/1", "/jobs/1", "/jobs/1"]


def drip() -> Iterator[bytes]:
    for _ in range(400):
        time.sleep(0.1)
        yield b" "


def huge() -> Iterator[bytes]:
    for _ in range(60):
        yield b" " * 1_000_000


BOMB = gzip.compress(b" " * 80_000_000)
TRICKS: dict[str, tuple[Any, str]] = {
    "a redirect": (lambda *_: (302, {"location": "http://127.0.0.1:1/"}, b""), "redirect"),
    "another kind of redirect": (lambda *_: (303, {"location": "/elsewhere"}, b""), "redirect"),
    "a poll elsewhere": (lambda *_: (202, {}, b'{"poll_url": "http://169.254.169.254/latest"}'), "another place than its own"),
    "a poll at another port": (lambda *_: (202, {}, b'{"poll_url": "http://127.0.0.1:1/x"}'), "another place than its own"),
    "a poll with a name": (
        lambda m, p, h, b: (202, {}, json.dumps({"poll_url": f"http://u:p@{h['host']}/"}).encode()),
        "another place",
    ),
    "no poll": (lambda *_: (202, {}, b"{}"), "no poll_url"),
    "a huge body": (lambda *_: (200, {}, huge()), "larger than"),
    "a packed bomb": (lambda *_: (200, {"content-encoding": "gzip"}, BOMB), "larger than"),
    "a slow body": (lambda *_: (200, {}, drip()), "not done after"),
    "no JSON": (lambda *_: (200, {}, b"<html>"), "not JSON"),
    "an error": (lambda *_: (500, {}, b"{}"), "500"),
    "a refusal": (lambda *_: (403, {}, b"{}"), "403"),
    "the secret": (lambda m, p, h, b: (200, {}, result(b, h["authorization"])), "secret of ours back"),
    "the secret, with a refusal": (lambda m, p, h, b: (401, {}, h["authorization"].encode()), "secret of ours back"),
    "another nonce": (lambda m, p, h, b: (200, {}, result(b, nonce="0" * 32)), "nonce"),
    "a path outside": (
        lambda m, p, h, b: (200, {}, result(b, outputs=[{"name": "out", "path": "../../x", "content": "x"}])),
        "leaves its folder",
    ),
}


@pytest.mark.parametrize("trick", some(TRICKS, 2))
def test_what_a_service_tries_is_refused(trial: Any, serve: Any, trick: str) -> None:
    answer, says = TRICKS[trick]
    service = serve(answer)
    hooked(trial, f"{service.url}/make")
    if trick == "a slow body":
        contract = trial.workspace / "mine/hook/agent.yaml"
        contract.write_text(contract.read_text().replace("timeout_seconds: 20", "timeout_seconds: 3"))
    assert says in trial.job("hook", HOOK_KEY=SECRET)
    everything = b"".join(p.read_bytes() for p in trial.session.rglob("*") if p.is_file())
    assert SECRET.encode() not in everything


def test_a_poll_is_not_redirected(trial: Any, serve: Any) -> None:
    def answer(method: str, path: str, headers: dict[str, str], body: bytes) -> Any:
        if method == "POST":
            return 202, {}, b'{"poll_url": "/jobs/1"}'
        return (302, {"location": "/jobs/2"}, b"") if path == "/jobs/1" else (200, {}, result(service.seen[0][3]))

    service = serve(answer)
    hooked(trial, f"{service.url}/make")
    assert trial.run(HOOK_KEY=SECRET).code == 1
    assert "redirected" in trial.why("hook") and "/jobs/2" not in [seen[1] for seen in service.seen]


def test_a_variable_that_is_not_set_sends_nothing(trial: Any, serve: Any) -> None:
    service = serve(lambda *_: (200, {}, b"{}"))
    hooked(trial, f"{service.url}/make")
    assert "needs the variable HOOK_KEY" in trial.job("hook")
    assert "needs the variable HOOK_KEY" in trial.job("hook", HOOK_KEY="") and not service.seen


def test_without_settings_nothing_is_reached(trial: Any, serve: Any) -> None:
    service = serve(lambda *_: (200, {}, b"{}"))
    hooked(trial, f"{service.url}/make")
    for settings in ({}, {"webhook_allowed_hosts": ["127.0.0.1"]}):
        trial.settings(**settings)
        error = trial.run(HOOK_KEY=SECRET).error  # before anything is spent
        assert "mine/hook/agent.yaml:" in error["message"] and error["code"] == "BAD_CONFIG", error
        assert trial.house.json("downstream", "check", "--agents", "mine").code == 1
    trial.settings(webhook_allowed_hosts=["127.0.0.1"], webhook_allow_insecure=True)
    assert "WEB_REFUSED" in trial.job("hook", HOOK_KEY=SECRET)  # the address is looked at when it is connected to
    assert not service.seen


def test_a_recorded_answer_is_replayed_with_the_service_gone(trial: Any, serve: Any) -> None:
    service = serve(lambda method, path, headers, body: (200, {}, result(body)))
    hooked(trial, f"{service.url}/make")
    assert trial.run("--driver", "record", HOOK_KEY=SECRET).code == 0
    recorded = trial.session.rename(trial.house.folder / "recorded")
    service.close()
    ran = trial.run("--driver", "replay", "--fixtures", str(recorded), HOOK_KEY=SECRET)
    assert ran.code == 0, ran.stderr
    assert trial.left("hook/out.md") == "# By webhook\n" and len(service.seen) == 1
