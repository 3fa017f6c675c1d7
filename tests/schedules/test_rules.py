"""Tests of the rules of schedules: their slots, their descriptions, and the rules refused."""

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from pulljobs.errors import InvalidSchedule
from pulljobs.schedules.rules import Rule, make_rule
from tests.schedules.brute_force import CRON_RULES, changes, differing

NOW = datetime(2026, 3, 28, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SAMPLED_ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",  # its clock changes by half an hour
    "Africa/Casablanca",  # four changes a year, around Ramadan
    "America/Asuncion",  # the hour after midnight does not exist
    "Asia/Beirut",  # the hour before midnight exists twice
    "Antarctica/Troll",  # its clock changes by two hours
    "Asia/Kathmandu",
    "UTC",
]


@pytest.mark.parametrize("name", SAMPLED_ZONES)
def test_slots_around_changes_equal_those_by_brute_force(name: str) -> None:
    sample = changes(ZoneInfo(name))[-4:] or [NOW]
    assert [(change, wrong) for change in sample if (wrong := differing(name, change))] == []


@pytest.mark.parametrize(
    ("cron", "local_times"),
    [
        # On 28 March 2027 the hour from 2 to 3 does not exist. On 31 October it exists twice.
        ("30 2 * * *", ["03-27 02:30", "03-28 03:00", "03-29 02:30"]),
        ("*/30 2 * * *", ["03-27 02:30", "03-28 03:00", "03-29 02:00"]),
        ("0 2,3 * * *", ["03-27 03:00", "03-28 03:00", "03-29 02:00"]),
        ("0 12 * * *", ["03-27 12:00", "03-28 12:00", "03-29 12:00"]),
    ],
)
def test_a_local_time_that_does_not_exist_fires_once_at_the_change(
    cron: str, local_times: list[str]
) -> None:
    after = datetime(2027, 3, 27, 1, 0, tzinfo=UTC)
    rule = Rule(cron=cron, timezone="Europe/Berlin")
    made = [slot.astimezone(rule.zone) for slot in islice(rule.slots_after(after), 6)]
    assert [f"{slot:%m-%d %H:%M}" for slot in made if f"{slot:%m-%d %H:%M}" in local_times] == (
        local_times
    )
    assert sum(slot.day == 28 for slot in made) == 1


def test_a_local_time_that_exists_twice_fires_the_first_time_only() -> None:
    rule = Rule(cron="30 2 * * *", timezone="Europe/Berlin")
    slots = list(islice(rule.slots_after(datetime(2027, 10, 30, 12, tzinfo=UTC)), 2))
    assert slots == [
        datetime(2027, 10, 31, 0, 30, tzinfo=UTC),
        datetime(2027, 11, 1, 1, 30, tzinfo=UTC),
    ]


def test_a_wildcard_hour_fires_in_both_hours_of_the_same_name() -> None:
    rule = Rule(cron="30 * * * *", timezone="Europe/Berlin")
    slots = list(islice(rule.slots_after(datetime(2027, 10, 30, 23, 0, tzinfo=UTC)), 4))
    assert [after - before for before, after in zip(slots, slots[1:], strict=False)] == [HOUR] * 3


def test_a_schedule_in_utc_never_shifts() -> None:
    rule = Rule(cron="30 2 * * *")
    slots = list(islice(rule.slots_after(NOW), 400))
    assert {slot.time() for slot in slots} == {slots[0].time()}
    assert slots[-1] - slots[0] == timedelta(days=399)


def test_slots_do_not_depend_on_where_the_walk_begins() -> None:
    start = datetime(2027, 10, 30, tzinfo=UTC)
    for cron in CRON_RULES[:8]:
        rule = Rule(cron=cron, timezone="Europe/Berlin")
        slots = list(islice(rule.slots_after(start), 200))
        for before, slot in zip(slots, slots[1:], strict=False):
            assert rule.next_slot(before) == slot
            assert rule.next_slot(slot - timedelta(microseconds=1)) == slot


def test_an_interval_is_anchored_at_its_start() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    rule = make_rule(every=timedelta(minutes=7), starts_at=start, now=NOW)
    slots = list(islice(rule.slots_after(NOW), 3))
    assert all((slot - start) % timedelta(minutes=7) == timedelta() for slot in slots)
    assert NOW < slots[0] <= NOW + timedelta(minutes=7)
    assert rule.next_slot(start - timedelta(days=1)) == start


def test_no_slot_is_outside_of_start_and_end() -> None:
    starts_at, ends_at = NOW + HOUR, NOW + 3 * HOUR
    for rule in (
        make_rule(cron="0 * * * *", starts_at=starts_at, ends_at=ends_at, now=NOW),
        make_rule(every=HOUR, starts_at=starts_at, ends_at=ends_at, now=NOW),
    ):
        assert list(rule.slots_after(NOW)) == [NOW + count * HOUR for count in (1, 2, 3)]


def test_the_jitter_of_a_slot_is_fixed_and_below_its_bound() -> None:
    rule = make_rule(cron="* * * * *", jitter=timedelta(seconds=30), now=NOW)
    slots = list(islice(rule.slots_after(NOW), 200))
    offsets = [rule.fires_at(slot, "daily") - slot for slot in slots]
    assert offsets == [rule.fires_at(slot, "daily") - slot for slot in slots]
    assert timedelta() <= min(offsets) < timedelta(seconds=3)
    assert timedelta(seconds=27) < max(offsets) < timedelta(seconds=30)
    assert offsets != [rule.fires_at(slot, "weekly") - slot for slot in slots]


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("0 6 * * 1-5", "At 06:00 on Monday through Friday (Europe/Berlin)"),
        ("0 0 1,L * *", "At 00:00 on the first and the last day of month (Europe/Berlin)"),
        ("@daily", "At 00:00 every day (Europe/Berlin)"),
        ("*/10 * * * * *", "Every 10th second of every minute (Europe/Berlin)"),
        ("*/2 * * * * *", "Every other second of every minute (Europe/Berlin)"),
        ("30 */2 * * * *", "At second 30 every other minute past every hour (Europe/Berlin)"),
        ("* * 5 * * *", "Every second every minute past hour 5 (Europe/Berlin)"),
        (
            "0 0 11,22,31 */2 *",
            "At 00:00 on the 11th, the 22nd, and the 31st day of month in every other month "
            "(Europe/Berlin)",
        ),
        ("0 9 * * MON#2", "At 09:00 on the second Monday of the month (Europe/Berlin)"),
        ("0 9 * * 0,7", "At 09:00 on Sunday (Europe/Berlin)"),
        ("0 9 * * 7,1,SUN", "At 09:00 on Sunday and Monday (Europe/Berlin)"),
    ],
)
def test_a_rule_is_described_in_words(cron: str, words: str) -> None:
    assert make_rule(cron=cron, timezone="Europe/Berlin", now=NOW).describe() == words


@pytest.mark.parametrize(
    ("every", "words"),
    [
        (timedelta(seconds=1), "Every second"),
        (timedelta(seconds=90), "Every 1 minute and 30 seconds"),
        (timedelta(hours=2), "Every 2 hours"),
        (timedelta(days=1), "Every day"),
    ],
)
def test_an_interval_is_described_in_words(every: timedelta, words: str) -> None:
    assert make_rule(every=every, now=NOW).describe() == words


@pytest.mark.parametrize(
    ("cron", "advice"),
    [
        ("60 * * * *", r"field 1 \(minute\): '60' can't be used: write 0 to 59"),
        ("1,,2 * * * *", r"field 1 \(minute\): '' can't be used: write 0 to 59"),
        ("0 24 * * *", r"field 2 \(hour\): '24' .*0 is midnight"),
        ("0 0 24 * * *", r"field 3 \(hour\)"),
        ("0 1,25 * * *", r"field 2 \(hour\): '25'"),
        ("0 22-3 * * *", r"so write 22-23,0-3\."),
        ("0 0 * * fri-mon", r"so write FRI-SAT,SUN-MON\."),
        ("0 0 * * 5-1", r"so write 5-6,0-1\."),
        ("0 0 * * 7-2", r"so write 0-2\."),
        ("13-13/3 * * * *", "a step needs a range of two values, so write 13"),
        ("0 0 1 5-may/2 *", r"'5-MAY/2' .*so write 5\."),
        ("0 0 * * monday", r"such as 'MON'\."),
        ("0 0 ? * *", r"field 3 \(day of month\): '\?' .* write \*"),
        ("0 0 15W * *", "only LW"),
        ("*/0 * * * *", "write a step from 1 to 59"),
        ("*/90 * * * *", r"'\*/90' can't be used: write a step from 1 to 59"),
        ("0 0 * * 1-5/8", r"a step from 1 to 7, such as 1-5/2, or use every"),
        ("*/\N{SUPERSCRIPT TWO} * * * *", "write a step from 1 to 59"),
        ("0 0 30 2 *", "no month in field 4 has the day of field 3"),
        ("0 0 31 2 *", "choose an earlier day"),
        ("* * * *", "has 4 fields: write 5"),
        ("0 0 0 1 1 * 2027", "A year is not supported"),
        ("@dayly", "did you mean '@daily'"),
        ("@reboot", "is none of @yearly"),
        ("* * */20 * 1L", "has no slot after"),
        ("\N{FULLWIDTH DIGIT ONE} * * * *", r"field 1 \(minute\)"),
        ("1 " * 200, "up to 255 characters"),
        ("", "either cron or every"),
    ],
)
def test_a_rule_that_cannot_work_is_refused_with_its_field_and_advice(
    cron: str, advice: str
) -> None:
    with pytest.raises(InvalidSchedule, match=advice) as refused:
        make_rule(cron=cron, now=NOW)
    assert refused.value.field == "cron"


@pytest.mark.parametrize(
    ("options", "field", "advice"),
    [
        ({"timezone": "Berlin"}, "timezone", "did you mean 'Europe/Berlin'"),
        ({"timezone": "europe/berlin"}, "timezone", "did you mean 'Europe/Berlin'"),
        ({"timezone": "Europe/Berln"}, "timezone", "did you mean 'Europe/Berlin'"),
        ({"timezone": "utc"}, "timezone", "did you mean 'UTC'"),
        ({"timezone": "GMT+2"}, "timezone", r"'GMT\+2': write an IANA name"),
        ({"timezone": "UTC-2"}, "timezone", "'UTC-2': write an IANA name"),
        ({"timezone": "nowhere at all"}, "timezone", "such as 'Europe/Berlin'"),
        ({"timezone": "../etc/passwd"}, "timezone", "There is no time zone"),
        ({"timezone": "localtime"}, "timezone", "'localtime': write an IANA name, such as"),
        ({"starts_at": datetime(2026, 1, 1)}, "starts_at", "give it a time zone"),  # noqa: DTZ001
        ({"ends_at": datetime(2026, 1, 1)}, "ends_at", "give it a time zone"),  # noqa: DTZ001
        ({"ends_at": NOW - HOUR}, "ends_at", "Choose a later end"),
        ({"jitter": timedelta(minutes=2)}, "jitter", "only 0:01:00 apart"),
        ({"jitter": timedelta(seconds=-1)}, "jitter", "choose at least 0 s"),
        ({"jitter": 5}, "jitter", "must be a timedelta"),
        ({"every": HOUR}, "cron", "not both"),
    ],
)
def test_an_option_that_cannot_work_is_refused_by_its_name(
    options: dict[str, object], field: str, advice: str
) -> None:
    with pytest.raises(InvalidSchedule, match=advice) as refused:
        make_rule(**{"cron": "* * * * *", "now": NOW, **options})  # type: ignore[arg-type]
    assert refused.value.field == field


@pytest.mark.parametrize("seconds", [0, 0.999, -60, 40_000 * 86_400])
def test_an_interval_below_a_second_or_above_a_century_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidSchedule, match="choose at least 1 s and at most"):
        make_rule(every=timedelta(seconds=seconds), now=NOW)
