"""The microphone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from turbospark_cli.audio.transcript import SAMPLE_RATE
from turbospark_cli.errors import DeviceUnavailable

if TYPE_CHECKING:
    from turbospark_cli.audio.transcript import Sound

_BLOCK: Final = 0.1  # seconds that are taken at a time


class Microphone:
    """An open microphone; `rate` in Hz."""

    def __init__(self, stream: Any, rate: int) -> None:
        self._stream = stream
        self.rate = rate

    def blocks(self) -> Iterator[Sound]:
        """What it hears, a tenth of a second at a time, until the consumer has had enough.

        Raises DeviceUnavailable when it is unplugged.
        """
        sounddevice = _library()
        try:
            while True:
                frames, _ = self._stream.read(round(self.rate * _BLOCK))
                yield frames[:, 0].copy()
        except sounddevice.PortAudioError as error:
            raise DeviceUnavailable(f"The microphone stopped: {_reason(error)}.") from error


@contextmanager
def microphone(name: str | None = None) -> Iterator[Microphone]:
    """Open the microphone called `name` (or with that number); None is the system's own choice.

    Raises DeviceUnavailable when there is none, or the library for it is missing.
    """
    sounddevice = _library()
    device = int(name) if name is not None and name.isdecimal() else name
    try:
        facts = sounddevice.query_devices(device, "input")
        rate = SAMPLE_RATE
        try:
            sounddevice.check_input_settings(device, channels=1, samplerate=rate, dtype="float32")
        except sounddevice.PortAudioError:
            rate = round(facts["default_samplerate"])
        stream = sounddevice.InputStream(samplerate=rate, device=device, channels=1, dtype="float32")
    except (sounddevice.PortAudioError, ValueError) as error:
        raise _unavailable(name, sounddevice, error) from error
    with stream:
        yield Microphone(stream, rate)


def _library() -> Any:
    try:
        import sounddevice
    except OSError as error:
        raise DeviceUnavailable(
            "The microphone needs PortAudio, which is not installed.",
            hint="On Debian and Ubuntu: apt install libportaudio2",
        ) from error
    return sounddevice


def _unavailable(name: str | None, sounddevice: Any, error: Exception) -> DeviceUnavailable:
    found = [each["name"] for each in sounddevice.query_devices() if each["max_input_channels"] > 0]
    if not found:
        return DeviceUnavailable("There is no microphone.", hint="Plug one in, or name a file.")
    if name is None:
        return DeviceUnavailable(f"The microphone cannot be opened: {_reason(error)}.")
    return DeviceUnavailable(
        f"There is no microphone {name!r} that can be opened.", hint=f"There are: {', '.join(found)}."
    )


def _reason(error: Exception) -> str:
    return str(error.args[0] if error.args else error).rstrip(".")
