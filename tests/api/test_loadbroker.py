"""`pulljobs loadbroker FILE` reads the INI file of the webhook-broker."""

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from pulljobs.models import Channel, Consumer, LimitGroup, Producer
from tests.sessions import contents

GOOD = """
[broker]
max-retry=7
retry-backoff-delays-in-seconds=1,2,3
rational-delay-in-seconds=4
[consumer-connection]
connection-timeout-in-seconds=10
[scheduler]
scheduler-interval-ms=5000
[initial-channels]
orders=Orders, all of them
[initial-producers]
shop=The shop
[initial-channel-tokens]
orders=channel-token
[initial-producer-tokens]
shop="shop-token"
[initial-consumers]
billing=https://billing.example.com/hook?a=1
Billing=http://localhost:8080/b ; a comment
[billing]
token=billing-token
channel=orders
type=pull
[Billing]
token=other-token
channel=orders
type=
"""
TABLES = ("pulljobs_channel", "pulljobs_producer", "pulljobs_consumer")


@pytest.fixture
def file(tmp_path: Path, db: None) -> Path:
    path = tmp_path / "webhook-broker.cfg"
    path.write_text(GOOD)
    return path


def load(file: Path) -> dict[str, Any]:
    output = StringIO()
    call_command("pulljobs", "loadbroker", str(file), "--json", stdout=output)
    report: dict[str, Any] = json.loads(output.getvalue())
    return report


def test_what_it_makes(file: Path) -> None:
    """Each section makes a row, and every consumer gets the settings that the file has for all."""
    output = load(file)
    assert sorted(output["made"]) == [
        "channel orders",
        "consumer Billing",
        "consumer billing",
        "producer shop",
    ]
    assert (output["changed"], output["unchanged"], output["skipped"]) == ([], [], [])
    by_put = "of consumers that a PUT creates: set PULLJOBS"
    assert output["elsewhere"] == [
        "[scheduler]: see PULLJOBS['MIN_SCHEDULE_DELAY'].",
        f"max retries {by_put}['PROTOCOL_MAX_RETRIES'] = 7.",
        f"retry strategy {by_put}['PROTOCOL_RETRY_STRATEGY'] = '1,2,3'.",
        "protocol lease duration "
        f"{by_put}['PROTOCOL_LEASE'] = timedelta(seconds=14, microseconds=250000).",
    ]
    orders, shop = Channel.objects.get(), Producer.objects.get()
    assert (orders.title, orders.has_token("channel-token")) == ("Orders, all of them", True)
    assert (shop.name, shop.has_token("shop-token")) == ("shop", True)
    billing = Consumer.objects.get(name="billing")
    assert (billing.type, billing.channel, billing.has_token("billing-token")) == (
        "pull",
        orders,
        True,
    )
    assert billing.callback_url == "https://billing.example.com/hook?a=1"
    assert (billing.max_retries, billing.retry_delays) == (7, [1, 2, 3])
    assert billing.protocol_lease_duration == timedelta(seconds=14.25)
    other = Consumer.objects.get(name="Billing")
    assert (other.type, other.callback_url) == ("push", "http://localhost:8080/b")


def test_the_same_file_again_changes_nothing(file: Path) -> None:
    made = load(file)["made"]
    before = contents(*TABLES)
    output = load(file)
    assert (output["made"], output["changed"], output["unchanged"]) == ([], [], made)
    assert contents(*TABLES) == before


def test_a_changed_file_changes_what_it_names(file: Path) -> None:
    """A changed entry changes its row. A row that the file no longer names stays as it is."""
    load(file)
    file.write_text(GOOD.replace("=channel-token", "=new").replace("shop=The shop", ""))
    output = load(file)
    assert output["changed"] == ["channel orders"]
    assert Channel.objects.get().has_token("new")
    assert Producer.objects.count() == 1


def test_what_it_does_not_tell_stays_as_it_is(file: Path) -> None:
    """Settings of rows that a later INI file leaves out are not reset."""
    load(file)
    file.write_text("\n".join(GOOD.splitlines()[7:]))
    load(file)
    assert set(Consumer.objects.values_list("max_retries", flat=True)) == {7}


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("shop=The shop", "shop=The shop\nbare=B", "producer bare: it has no token"),
        ("orders=Orders", "bare=x\norders=Orders", "channel bare: it has no token"),
        ("shop-token", "shop token", "producer shop: The token"),
        ("type=pull", "type=Pull", "consumer billing: type must be"),
        ("https://billing", "billing", "consumer billing: callbackUrl"),
        ("[billing]", "[billed]", "consumer billing: there is no section"),
        ("token=billing-token", "", "consumer billing: it has no token"),
        ("token=billing-token\nchannel=orders", "token=t\nchannel=x", "does not create 'x'"),
        ("max-retry=7", "max-retry=300", "[broker] max-retry"),
        ("1,2,3", "1,x,3", "[broker] retry-backoff-delays-in-seconds: 'x'"),
        ("delay-in-seconds=4", "delay-in-seconds=-4", "[broker] rational-delay-in-seconds"),
        ("type=pull", "type=pull\nrate=often", "consumer billing: 'often' is no rate"),
        ("type=pull", "type=pull\nrate=0/s", "consumer billing: '0/s' allows no job"),
        ("type=pull", "type=pull\nrate-burst=5", "consumer billing: The burst 5 needs a rate"),
        ("type=pull", "type=pull\nrate=1/s\nrate-burst=-1", "[billing] rate-burst: '-1'"),
        ("type=pull", "type=pull\nrate=1/s\nrate-window=on", "[billing] rate-window: 'on' is neit"),
        ("type=pull", "type=pull\nfair-by-key=yes", "[billing] fair-by-key: 'yes' is neither"),
        ("type=pull", "type=pull\nrate-per-key=true", "consumer billing: rate_per_key: It needs a"),
        ("type=pull", "type=pull\nlimit-group=stripe", "There is no limit group 'stripe'"),
    ],
)
def test_a_bad_entry_is_named_and_the_others_are_made(
    old: str, new: str, named: str, file: Path
) -> None:
    assert old in GOOD
    file.write_text(GOOD.replace(old, new, 1))
    output = load(file)
    [skipped] = output["skipped"]
    assert named in skipped
    assert len(output["made"]) >= 3


def test_a_rate_of_the_file_is_set_and_changed_and_ended(file: Path) -> None:
    load(file)
    for lines, rate in [
        ("type=pull\nrate=100/m\nrate-burst=5", ("100/m", 5)),
        ("type=pull", ("100/m", 5)),
        ("type=pull\nrate=10/s", ("10/s", 5)),
        ("type=pull\nrate=", ("", None)),
    ]:
        file.write_text(GOOD.replace("type=pull", lines))
        assert load(file)["skipped"] == []
        billing = Consumer.objects.get(name="billing")
        assert (billing.rate, billing.rate_burst) == rate


def test_the_other_limits_of_the_file_are_set(file: Path) -> None:
    group = LimitGroup.objects.create(name="stripe")
    lines = "type=pull\nrate=9/m\nrate-window=true\nmax-in-flight=4\nlimit-group=stripe"
    file.write_text(GOOD.replace("type=pull", lines))
    assert load(file)["skipped"] == []
    billing = Consumer.objects.get(name="billing")
    assert (billing.rate_window, billing.window_seconds, billing.max_in_flight) == (True, 60.0, 4)
    assert billing.limit_group == group


def test_the_limits_by_key_of_the_file_are_set_and_ended(file: Path) -> None:
    lines = "type=pull\nrate=9/m\nrate-per-key=true\nmax-in-flight-per-key=2\nfair-by-key=true"
    for changed, wanted in [
        (lines, (True, 2, True, 9 / 60)),
        ("type=pull", (True, 2, True, 9 / 60)),
        ("type=pull\nrate=\nfair-by-key=false", (False, 2, False, None)),
    ]:
        file.write_text(GOOD.replace("type=pull", changed))
        assert load(file)["skipped"] == []
        row = Consumer.objects.get(name="billing")
        limits = row.rate_per_key, row.max_in_flight_per_key, row.fair_by_key
        assert (*limits, row.key_rate_per_second) == wanted


def test_consumers_whose_delays_are_too_many_are_named_and_the_others_are_made(
    file: Path,
) -> None:
    file.write_text(GOOD.replace("1,2,3", ",".join(["3600"] * 80)))
    output = load(file)
    assert output["made"] == ["channel orders", "producer shop"]
    for skipped, name in zip(output["skipped"], ("billing", "Billing"), strict=True):
        assert skipped.startswith(f"consumer {name}: The retry delays must have 255 characters")


def test_no_token_is_printed(file: Path) -> None:
    output = StringIO()
    call_command("pulljobs", "loadbroker", str(file), stdout=output)
    assert "channel orders" in output.getvalue()
    assert "token" not in output.getvalue()


@pytest.mark.parametrize("content", [b"orders=x\n", b"\xff\xfe[broker]", b"[broker\n"])
def test_a_file_that_can_t_be_read(content: bytes, file: Path) -> None:
    """A missing or malformed file is an error of the command that says so."""
    file.write_bytes(content)
    with pytest.raises(CommandError, match="can't be read"):
        load(file)
    with pytest.raises(CommandError, match="can't be read: No such file or directory.$"):
        load(file.parent / "missing.cfg")


def test_a_file_without_entries(file: Path) -> None:
    """An empty file makes nothing and is no error."""
    file.write_text("")
    assert load(file)["made"] == []


def test_a_section_without_a_counterpart_is_named(file: Path) -> None:
    file.write_text(f"{GOOD}[dlq]\nsize=1\n[other]\nsize=1\n")
    texts = load(file)["elsewhere"]
    assert "[dlq]: see /job-status, which counts dead jobs when it is requested." in texts
    assert "[other]: it has no counterpart." in texts
