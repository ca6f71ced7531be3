"""What a tool may reach: schemes, hosts and addresses, and how much of it. `web.yaml` says so for a project."""

from __future__ import annotations

import fnmatch
import ipaddress
import socket
from pathlib import Path

from msgspec import Struct

from lib.contract import HOUSE, StrataError
from lib.disk import config, places, records

FILE = "web.yaml"


class Rules(Struct, frozen=True):
    """The bounds of every request. What no list names is refused."""

    schemes: tuple[str, ...] = ("https", "http")
    hosts: tuple[str, ...] = ("*",)  # `*.arxiv.org`, `api.example.com`
    private: tuple[str, ...] = ()  # HOST or HOST:PORT that may have an address of a private or special range
    user_agent: str = "Strata"
    contact: str = ""  # an address or a page, for whoever runs the site
    robots: bool = True
    delay_seconds: float = 1.0  # between two requests to one host, in all of a session
    timeout_seconds: float = 60.0  # of one request, redirects and waiting for the host's turn not counted
    max_bytes: int = 20_000_000  # unpacked
    max_redirects: int = 5
    max_wait_seconds: float = 60.0  # the longest Retry-After that is waited for
    ca: str = ""  # a file of certificates that are trusted besides the machine's own

    @property
    def agent(self) -> str:
        return f"{self.user_agent} (+{self.contact})" if self.contact else self.user_agent


def of_project() -> Rules:
    """The project's own, beside the plan or under `.strata/`, or the house's."""
    for root in places.roots():
        if (root / FILE).is_file():
            places.note("web", places.Found("rules", root / FILE, str(root)))
            return _read(root / FILE)
    return _read(HOUSE / "config" / FILE)


def _read(file: Path) -> Rules:
    data = config.read(file).check("web")
    return records.of({name: value for name, value in data.items() if name != "version"}, Rules)


def refuse(message: str, hint: str) -> StrataError:
    return StrataError("WEB_REFUSED", message, hint, final=True)


class Place(Struct, frozen=True):
    """Where a request goes: the name that was asked for, and the checked addresses, one of which is connected to."""

    host: str
    port: int
    addresses: tuple[str, ...]  # all checked; the next is tried where one cannot be reached


def check_name(rules: Rules, scheme: str, host: str, userinfo: bool) -> None:
    if scheme not in rules.schemes:
        raise refuse(f"{scheme or 'no scheme'}: not one of {', '.join(rules.schemes)}", "give a whole address, https://…")
    if userinfo:
        raise refuse(f"{host}: a name or password in the address", "give credentials as a header")
    if not host:
        raise refuse("an address without a host", "give a whole address, https://…")
    if not any(fnmatch.fnmatchcase(host, pattern.lower()) for pattern in rules.hosts):
        raise refuse(f"{host} is not on the list of hosts", f"hosts: in {FILE}")


def locate(rules: Rules, host: str, port: int) -> Place:
    """Every address the name has is checked, and one of these is connected to: it is not looked up a second time."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise StrataError("UNREACHABLE", f"{host}: the name is not found ({error})", "check the address, or try again") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    allowed = {host.lower(), f"{host.lower()}:{port}"} & {name.lower() for name in rules.private}
    for address in addresses if not allowed else ():
        why = special(address)
        if why:
            raise refuse(f"{host} leads to {address}, which is {why}", f"private: [{host}:{port}] in {FILE} allows it by name")
    return Place(host, port, tuple(addresses))


def special(address: str) -> str:
    """What is special about an address; nothing where it is one of the public internet's."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = _inner(ip)
        if inner is not None:
            return f"{inner} in disguise, {special(str(inner)) or 'an address inside another'}"
    kinds = ("loopback", "unspecified", "multicast", "link_local", "site_local", "private", "reserved")
    kind = next((kind for kind in kinds if getattr(ip, f"is_{kind}", False)), "" if ip.is_global else "not global")
    return kind.replace("_", "-")


def _inner(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The address of the old kind that one of the new kind carries."""
    if ip.ipv4_mapped or ip.sixtofour:
        return ip.ipv4_mapped or ip.sixtofour
    if ip.teredo:
        return ip.teredo[1]
    translated = ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")
    if any(ip in ipaddress.ip_network(network) for network in translated) and int(ip) > 1:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return None
