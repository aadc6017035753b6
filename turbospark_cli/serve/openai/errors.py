"""OpenAI's error envelope, and JSON that cannot be read as an error of the tree."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from turbospark_cli.errors import InvalidRequest, TurbosparkError
from turbospark_cli.serve.openai.wire import ErrorBody, ErrorDetail, encode

_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    503: "overloaded",
}
_AT: Final = re.compile(r" - at `(.*)`$")
_MISSING: Final = re.compile(r"^Object missing required field `(.*)`$")

Decoded = TypeVar("Decoded")


def error_body(error: TurbosparkError) -> bytes:
    """`{"error": {message, type, param, code}}`."""
    kind = _TYPES.get(error.status) or ("invalid_request_error" if error.status < 500 else "server_error")
    return encode(ErrorBody(ErrorDetail(error.message, kind, error.param, error.code)))


def decoded(decode: Callable[[bytes], Decoded], body: bytes) -> Decoded:
    """`decode(body)`. Raises InvalidRequest that names the field that is wrong."""
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        raise _wrong_field(str(error)) from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"The request body is not valid JSON: {_lower(str(error))}.") from None
    except RecursionError:
        raise InvalidRequest("The request body is nested too deeply.") from None
    except UnicodeDecodeError:
        raise InvalidRequest("The request body is not UTF-8.") from None


def _wrong_field(text: str) -> InvalidRequest:
    found = _AT.search(text)
    path = found[1].removeprefix("$").removeprefix(".") if found else ""
    text = _AT.sub("", text)
    missing = _MISSING.match(text)
    if missing:
        path = f"{path}.{missing[1]}" if path else missing[1]
        return InvalidRequest(f"The field {path} is required.", param=path)
    if not path:
        return InvalidRequest(f"The request body must be a JSON object ({_lower(text)}).")
    return InvalidRequest(f"The field {path} is wrong: {_lower(text)}.", param=path)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:].replace("`", "") if not text.startswith("JSON") else text[5:]
