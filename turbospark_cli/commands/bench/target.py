"""A server under measurement: where it is, which model it is asked for, whose CPU seconds count."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx2
import msgspec

from turbospark_cli.errors import AuthenticationFailed, ServerUnreachable, UsageError

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Target:
    """`base` ends in the path that holds `chat/completions`, without a slash."""

    base: str
    model: str
    key: str | None = None
    pid: int | None = None

    @property
    def chat(self) -> str:
        return f"{self.base}/chat/completions"

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.key is None else {"authorization": f"Bearer {self.key}"}


def base_url(url: str) -> str:
    """`url` with the path `/v1` when it has none. Raises UsageError when it is not an HTTP address."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url!r} is not the address of a server.", hint="Example: http://127.0.0.1:8080/v1")
    path = parts.path.rstrip("/") or "/v1"
    return f"{parts.scheme}://{parts.netloc}{path}"


def is_loopback(base: str) -> bool:
    """Whether the server runs on this machine, so that this machine's own key may be sent to it."""
    return urlsplit(base).hostname in _LOOPBACK


def first_model(base: str, key: str | None) -> str:
    """The first model that the server lists. Raises ServerUnreachable or AuthenticationFailed."""
    headers = Target(base, "", key).headers
    try:
        answer = httpx2.get(f"{base}/models", headers=headers, timeout=30, trust_env=False)
    except httpx2.HTTPError as error:
        raise ServerUnreachable(
            f"No server answers at {base} ({type(error).__name__}).",
            hint="Start one with `turbospark serve`.",
        ) from None
    if answer.status_code in (401, 403):
        raise AuthenticationFailed(f"{base} wants a key.", hint="Pass it with --api-key-file.")
    try:
        return str(msgspec.json.decode(answer.content)["data"][0]["id"])
    except (msgspec.DecodeError, KeyError, IndexError, TypeError):
        raise ServerUnreachable(
            f"{base} lists no model.", hint="Name one: turbospark bench MODEL --url …"
        ) from None
