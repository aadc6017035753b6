"""Every error a user or a client can meet, drawn as one tree.

TurbosparkError                     exit 1  HTTP 500   a fault in turbospark itself
├── UsageError                      exit 2  HTTP 400   a command line or a setting that cannot be used
├── InvalidRequest                  exit 2  HTTP 400   a request field that is wrong or cannot be honoured
│   └── ContextLengthExceeded       exit 2  HTTP 400   the prompt does not fit the model
├── ModelNotFound                   exit 3  HTTP 404   no model of this name is installed or served
├── AuthenticationFailed            exit 4  HTTP 401   a key is missing or wrong
├── Forbidden                       exit 4  HTTP 403   a host or origin that is not allowed
├── ServerUnreachable               exit 5  HTTP 502   no server answers at the address
├── NotEnoughMemory                 exit 6  HTTP 503   the model does not fit into memory
├── UnreadableAudio                 exit 1  HTTP 400   a file that does not hold sound we can decode
├── DeviceUnavailable               exit 1  HTTP 503   no microphone that can be used
├── OutputFailed                    exit 1  HTTP 500   a result that cannot be written, as on a full disk
├── PayloadTooLarge                 exit 2  HTTP 413   a request body over the limit
├── QueueFull                       exit 1  HTTP 429   too many requests are waiting
├── EngineUnavailable               exit 1  HTTP 503   the engine died, is loading, or has failed
├── PortTaken                       exit 1  HTTP 500   another program listens there
├── DownloadFailed                  exit 1  HTTP 502   a model cannot be fetched, or has the wrong hash
├── ConversionFailed                exit 1  HTTP 500   a file cannot be made into an install
└── CorruptInstall                  exit 1  HTTP 500   an install that lacks a file or has a damaged one

The message is one sentence that a user can act on; it never holds a prompt, a key or a path that a
remote client should not see. `hint` is shown on a terminal under the message.
"""

from __future__ import annotations

from typing import ClassVar


class TurbosparkError(Exception):
    """Base of the tree: `code` for machines, `message` and `hint` for people."""

    code: ClassVar[str] = "internal_error"
    exit_code: ClassVar[int] = 1
    status: ClassVar[int] = 500

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.param = param
        self.retry_after = retry_after


class UsageError(TurbosparkError):
    code = "usage"
    exit_code = 2
    status = 400


class InvalidRequest(TurbosparkError):
    code = "invalid_request"
    exit_code = 2
    status = 400


class ContextLengthExceeded(InvalidRequest):
    code = "context_length_exceeded"


class ModelNotFound(TurbosparkError):
    code = "model_not_found"
    exit_code = 3
    status = 404


class AuthenticationFailed(TurbosparkError):
    code = "invalid_api_key"
    exit_code = 4
    status = 401


class Forbidden(TurbosparkError):
    code = "forbidden"
    exit_code = 4
    status = 403


class ServerUnreachable(TurbosparkError):
    code = "server_unreachable"
    exit_code = 5
    status = 502


class NotEnoughMemory(TurbosparkError):
    code = "not_enough_memory"
    exit_code = 6
    status = 503


class UnreadableAudio(TurbosparkError):
    code = "unreadable_audio"
    status = 400


class DeviceUnavailable(TurbosparkError):
    code = "device_unavailable"
    status = 503


class OutputFailed(TurbosparkError):
    code = "output_failed"


class PayloadTooLarge(TurbosparkError):
    code = "payload_too_large"
    exit_code = 2
    status = 413


class QueueFull(TurbosparkError):
    code = "queue_full"
    status = 429


class EngineUnavailable(TurbosparkError):
    code = "engine_unavailable"
    status = 503


class PortTaken(TurbosparkError):
    code = "port_taken"


class DownloadFailed(TurbosparkError):
    code = "download_failed"
    status = 502


class ConversionFailed(TurbosparkError):
    code = "conversion_failed"


class CorruptInstall(TurbosparkError):
    code = "corrupt_install"


def by_code(code: str) -> type[TurbosparkError]:
    """The class whose `code` this is; the base class for a code nobody declared.

    Errors cross the engine's socket as data; this brings them back as exceptions.
    """
    pending: list[type[TurbosparkError]] = [TurbosparkError]
    while pending:
        cls = pending.pop()
        if cls.code == code:
            return cls
        pending.extend(cls.__subclasses__())
    return TurbosparkError
