"""Where a webhook may go, as far as its address tells: the scheme, and a host that the settings name. What a name leads to is
checked when it is connected to (`lib/web`)."""

from __future__ import annotations

from lib.web.rules import refuse


def allowed(text: str, hosts: tuple[str, ...], insecure: bool) -> tuple[str, str]:
    """The host and the address as they are used, if the settings name them."""
    import httpx2

    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise refuse(f"{text[:200]!r} is no address: {error}", "https://…") from None
    if url.scheme != "https" and not (insecure and url.scheme == "http"):
        raise refuse(f"{text}: a webhook is https", "webhook_allow_insecure: true is for a service on your own machine")
    if url.userinfo:
        raise refuse(f"{url.host}: a name or password in the address", "give credentials as a header, by a variable")
    host = url.raw_host.decode("ascii").lower().rstrip(".")
    if not host or not any(matches(host, pattern) for pattern in hosts):
        raise refuse(f"{host or 'no host'} is not on the list of hosts", "webhook_allowed_hosts in the settings of downstream")
    return host, str(url.copy_with(host=host, fragment=None))


def matches(host: str, pattern: str) -> bool:
    """`*.example.com` is every host below it, at a dot; anything else is itself."""
    pattern = pattern.lower().rstrip(".")
    return host.endswith(pattern[1:]) and len(host) > len(pattern) - 1 if pattern.startswith("*.") else host == pattern
