"""The command line, on a broker in memory."""

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import httpx
import pytest

from pulljobs.client import commands, log
from pulljobs.client.commands import main
from pulljobs.client.executing import variables
from tests.client.broker import FakeBroker
from tests.client.names import ENVIRONMENT
from tests.client.serving import served_at

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, token in ENVIRONMENT.items():
        monkeypatch.setenv(name, token)


def publish(broker: FakeBroker, *arguments: str) -> int:
    with served_at(broker) as url:
        return main(["publish", f"{url}/channel/orders", *arguments, "--producer", "shop"])


def published(broker: FakeBroker) -> list[str]:
    return [job.message["MessageID"] for job in broker.jobs]


def test_one_id_is_of_one_message(tmp_path: Path, capsys: Capture) -> None:
    """`--message-id` is refused for two messages, because the second would be a duplicate."""
    broker, file = FakeBroker(), tmp_path / "orders"
    file.write_text("one\ntwo\n")
    of_id = ("--message-id", "m-1")
    assert publish(broker, str(file), "--lines", *of_id) == 1
    assert publish(broker, str(file), str(file), *of_id) == 1
    assert "--message-id names one message, but there are 2" in capsys.readouterr().err
    assert published(broker) == []
    assert publish(broker, str(file), *of_id) == 0
    assert published(broker) == ["m-1"]


def test_a_publish_without_a_channel_is_asked_for_the_url_of_one(capsys: Capture) -> None:
    assert main(["publish", "http://127.0.0.1:9/nothing", "--producer", "shop"]) == 1
    assert "write http://HOST/channel/NAME to publish" in capsys.readouterr().err


def test_what_is_refused_hides_no_id_of_others(tmp_path: Path, capsys: Capture) -> None:
    """If a message is refused, `publish` prints the ids of all others and exits with 1."""
    broker, empty, full = FakeBroker(), tmp_path / "empty", tmp_path / "full"
    empty.touch()
    full.write_text("an order")
    files = [str(empty), *[str(full)] * 150]
    assert publish(broker, *files) == 1
    output = capsys.readouterr()
    assert output.out.split() == published(broker)
    assert len(broker.jobs) == 150
    assert "not empty" in output.err


def test_an_error_hides_no_id_from_before_it(tmp_path: Path, capsys: Capture) -> None:
    """`publish` prints the ids of the messages that were published before the error."""
    broker, full = FakeBroker(), tmp_path / "full"
    full.write_text("an order")
    broker.limits = {"MaxBatch": 40}
    refusal = httpx.Response(403, json={"detail": "no more"})
    broker.failing = lambda request: refusal if len(broker.jobs) == 25 else None
    assert publish(broker, *[str(full)] * 50) == 1
    output = capsys.readouterr()
    assert output.out.split() == published(broker)
    assert len(broker.jobs) == 25
    assert output.err == "pulljobs: no more\n"


def test_what_can_not_be_printed_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages of a `fetch` go back uncharged if its stdout is a pipe without a reader."""
    broker = FakeBroker()
    broker.publish(3)

    def fail(*_texts: str, flush: bool = False, file: Any = None) -> None:
        if flush:
            raise BrokenPipeError

    monkeypatch.setattr(commands, "print", fail, raising=False)
    with served_at(broker) as url:
        assert main(["fetch", f"{url}/channel/orders/consumer/census", "-n", "3"]) == 1
    assert [(job.state, job.deliveries) for job in broker.jobs] == [("QUEUED", 0)] * 3


@pytest.mark.parametrize("count", ["0", "-1", "some"])
def test_a_count_is_from_1(count: str, capsys: Capture) -> None:
    """A `--count` below 1, with which the command `consume` would never end, is refused."""
    url = "http://broker/channel/orders/consumer/census"
    with pytest.raises(SystemExit) as ended:
        main(["consume", url, "--exec", "true", f"--count={count}"])
    assert ended.value.code == 2
    assert f"--count: '{count}' is no whole number from 1" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["Lang: de", "=de"])
def test_a_header_has_a_name_and_a_text(text: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        publish(FakeBroker(), "--header", text)
    assert f"--header: {text!r} is no header: write NAME=TEXT" in capsys.readouterr().err


def test_a_command_signs_for_a_gateway(capsys: Capture) -> None:
    """The client signs its requests if the secret of a gateway is in the environment."""
    broker = FakeBroker()
    broker.failing = lambda asked: (
        None if "X-Broker-Signature" in asked.headers else httpx.Response(401)
    )
    with served_at(broker) as url:
        assert main(["info", f"{url}/channel/orders/consumer/census"]) == 0, capsys.readouterr().err


def test_a_shell_gets_each_header_as_a_variable() -> None:
    """Other characters than letters, digits and "_" in header names become "_" in variables."""
    message: Any = MagicMock(headers={"X-Größe": "ü", "Lang": "de"})
    named = {name: text for name, text in variables(message).items() if "HEADER" in name}
    assert named == {"PULLJOBS_HEADER_X_GR__E": "ü", "PULLJOBS_HEADER_LANG": "de"}


def test_a_run_without_messages_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        log.stopped({})
    assert "Stopped: nothing received." in caplog.text
