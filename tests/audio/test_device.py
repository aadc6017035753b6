"""The microphone and the recorder, over a PortAudio that is not one."""

from __future__ import annotations

import builtins
import sys
import wave
from types import ModuleType
from typing import Any, Self

import numpy as np
import pytest

from turbospark_cli.audio.device import microphone
from turbospark_cli.audio.recorder import meter, recorded
from turbospark_cli.errors import DeviceUnavailable
from turbospark_cli.status_line import NoStatus


class PortAudioError(Exception):
    """As sounddevice has it."""


class Stream:
    """A stream of ten blocks, after which the person at the keyboard presses Ctrl-C."""

    def __init__(self, samplerate: float, **_: object) -> None:
        self.rate = samplerate
        self.left = 10
        self.last: BaseException = KeyboardInterrupt()

    def read(self, count: int) -> tuple[Any, bool]:
        if not self.left:
            raise self.last
        self.left -= 1
        return np.full((count, 1), 0.5, np.float32), False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.left = 0


class FakeSound(ModuleType):
    """Enough of sounddevice."""

    PortAudioError = PortAudioError

    def __init__(self, inputs: list[str], rates: tuple[int, ...] = (16_000, 48_000)) -> None:
        super().__init__("sounddevice")
        self.inputs, self.rates = inputs, rates
        self.opened: list[Stream] = []
        self.asked: list[object] = []

    def query_devices(self, device: object = None, kind: str | None = None) -> Any:
        every = [
            {"name": name, "max_input_channels": 1, "default_samplerate": 48_000.0} for name in self.inputs
        ]
        if kind is None:
            return [*every, {"name": "speaker", "max_input_channels": 0}]
        self.asked.append(device)
        found = every[:1] if device is None else [each for each in every if each["name"] == device]
        if not found:
            raise ValueError("No input device matching") if device else PortAudioError("Error querying", -1)
        return found[0]

    def check_input_settings(self, device: object, channels: int, samplerate: int, dtype: str) -> None:
        if samplerate not in self.rates:
            raise PortAudioError("Invalid sample rate", -9997)

    def InputStream(self, **settings: Any) -> Stream:  # noqa: N802 - its name there
        self.opened.append(Stream(**settings))
        return self.opened[-1]


def plug_in(patch: pytest.MonkeyPatch, *inputs: str, rates: tuple[int, ...] = (16_000, 48_000)) -> FakeSound:
    fake = FakeSound(list(inputs), rates)
    patch.setitem(sys.modules, "sounddevice", fake)
    return fake


def test_ctrl_c_ends_a_recording_and_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, "webcam")
    with recorded(None, None, NoStatus()) as file, wave.open(file, "rb") as sound:
        assert (sound.getframerate(), sound.getnchannels(), sound.getnframes()) == (16_000, 1, 16_000)
        assert np.frombuffer(sound.readframes(100), "<i2").tolist() == [16_383] * 100


def test_it_ends_by_itself_after_the_time_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, "webcam")
    with recorded(None, 0.25, NoStatus()) as file, wave.open(file, "rb") as sound:
        assert sound.getnframes() == 4000


def test_a_microphone_with_a_rate_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, "webcam", rates=(48_000,))
    with microphone() as opened:
        assert opened.rate == 48_000


@pytest.mark.parametrize(("name", "device"), [("2", 2), ("usb", "usb")])
def test_a_microphone_by_name_or_number(monkeypatch: pytest.MonkeyPatch, name: str, device: object) -> None:
    fake = plug_in(monkeypatch, "webcam", "usb")
    if name == "usb":
        with microphone(name):
            pass
    else:
        with pytest.raises(DeviceUnavailable, match="There is no microphone '2'"), microphone(name):
            pass
    assert fake.asked == [device]


def test_no_microphone_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch)
    with pytest.raises(DeviceUnavailable) as raised, recorded(None, None, NoStatus()):
        pass
    assert raised.value.message == "There is no microphone."


def test_an_unknown_name_lists_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, "webcam", "usb")
    with pytest.raises(DeviceUnavailable) as raised, microphone("headset"):
        pass
    assert raised.value.message == "There is no microphone 'headset' that can be opened."
    assert raised.value.hint == "There are: webcam, usb."


def test_a_missing_library_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "sounddevice":
            raise OSError("PortAudio library not found")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DeviceUnavailable) as raised, microphone():
        pass
    assert raised.value.message == "The microphone needs PortAudio, which is not installed."
    assert raised.value.exit_code == 1


def test_a_microphone_that_is_unplugged(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = plug_in(monkeypatch, "webcam")
    with microphone() as opened:
        fake.opened[0].last = PortAudioError("Device unavailable", -9985)
        with pytest.raises(DeviceUnavailable, match=r"The microphone stopped: Device unavailable\."):
            list(opened.blocks())


def test_ctrl_c_before_it_is_open_means_what_it_always_means(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = plug_in(monkeypatch, "webcam")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fake, "query_devices", interrupt)
    with pytest.raises(KeyboardInterrupt), recorded(None, None, NoStatus()):
        pass


@pytest.mark.parametrize(("level", "marks"), [(0.0, 0), (0.001, 0), (0.0316, 10), (1.0, 20), (9.0, 20)])
def test_the_meter(level: float, marks: int) -> None:
    line = meter(level, 61)
    assert line.startswith("Recording 1:01 [")
    assert (line.count("#"), line.count("#") + line.count("-") - 1) == (marks, 20)
