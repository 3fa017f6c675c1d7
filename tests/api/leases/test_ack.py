"""Outcomes of pulled jobs: acks, retries, renewals and late answers."""

import json
import time
from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.db.models.functions import Now
from django.test import override_settings

from pulljobs import ids, pulling
from pulljobs.api.leases import owned_items
from pulljobs.models import ArchivedJob, Attempt, Consumer, Job, Lease
from pulljobs.storage import protocol
from tests.api.caller import publish, subscription
from tests.api.leases.serving import LONG, Puller, in_flight, outcome_of, waiting
from tests.factories import USING
from tests.sessions import Thread, contents, pass_time, query, session, wait_until

LEASE = 30
MALFORMED: list[dict[str, Any]] = [
    {"Outcome": "QUEUED"},
    {"Outcome": None},
    {"Outcome": ["DELIVERED"]},
    {"Outcome": "RETRY", "DelaySeconds": -1},
    {"Outcome": "RETRY", "DelaySeconds": "abc"},
    {"Outcome": "RETRY", "DelaySeconds": True},
    {"Outcome": "RETRY", "ThrottleSeconds": -1},
    {"Outcome": "RETRY", "ThrottleSeconds": 60, "ThrottleKey": "a"},
    {"Outcome": "DEAD", "Reason": 5},
    {"Outcome": "DEAD", "Error": ["x"]},
    {"ID": 5, "Outcome": "DELIVERED"},
    {"LeaseToken": None, "Outcome": "DELIVERED"},
]


def test_outcomes(puller: Puller) -> None:
    """DELIVERED and DEAD settle a job, and RETRY and RELEASE queue it again."""
    for _ in range(4):
        publish()
    jobs = puller.taken(Batch=4)
    outcomes = ["DELIVERED", "DEAD", "RETRY", "RELEASE"]
    statuses = puller.statuses(*map(outcome_of, jobs, outcomes))
    assert statuses == ["ok"] * 4
    states = dict(ArchivedJob.objects.values_list("job_id", "state"))
    states |= dict(Job.objects.values_list("id", "state"))
    assert [states[ids.decode(job["ID"])] for job in jobs] == [
        "DELIVERED",
        "DEAD",
        "QUEUED",
        "QUEUED",
    ]
    assert not in_flight()


def test_a_release_may_ask_for_a_delay_and_is_charged_nothing(puller: Puller) -> None:
    publish()
    [held] = puller.taken()
    assert puller.statuses(outcome_of(held, "RELEASE", DelaySeconds=3600, Reason="noon")) == ["ok"]
    job = Job.objects.get(available_at__gt=Now() + timedelta(minutes=50))
    assert (job.retry_count, job.deliveries, job.error) == (0, 0, None)
    assert Attempt.objects.get().error == "noon"


def test_a_repeated_ack_changes_nothing(puller: Puller) -> None:
    """The status of a repeated ack is "ok" as well, and the archive has one row."""
    for outcome in ("DELIVERED", "DEAD"):
        publish()
        [job] = puller.taken()
        assert puller.statuses(outcome_of(job, outcome), outcome_of(job, outcome)) == ["ok", "ok"]
        assert puller.statuses(outcome_of(job, outcome)) == ["ok"]
    assert ArchivedJob.objects.count() == 2


def test_a_repeat_of_what_went_back_is_lost(puller: Puller) -> None:
    """A repeated retry or release is "lease_lost", and so is another outcome of a settled job."""
    for first, second in (("RETRY", "RETRY"), ("RELEASE", "RELEASE"), ("DELIVERED", "DEAD")):
        publish()
        [job] = puller.taken()
        assert puller.statuses(outcome_of(job, first), outcome_of(job, second)) == [
            "ok",
            "lease_lost",
        ]


def test_a_retry_without_delay_comes_again_at_once(puller: Puller) -> None:
    publish(payload={"id": 17}, message_id="order-17", headers={"a": "b"})
    [first] = puller.taken()
    puller.ack(outcome_of(first, "RETRY", DelaySeconds=0))
    [second] = puller.taken()
    assert (second["ID"], second["Message"]) == (first["ID"], first["Message"])
    assert (second["Deliveries"], second["RetryCount"]) == (2, 1)


def test_a_waiter_learns_of_a_delay(puller: Puller) -> None:
    """A long poll gets a retried job when its delay ends.

    There are two polls, because the first may find the job when the server starts to listen.
    """
    for _waiter in range(2):
        publish()
        [job] = puller.taken()
        lingering = puller.long_poll()
        start = time.monotonic()
        puller.ack(outcome_of(job, "RETRY", DelaySeconds=0.6))
        [again] = lingering.result().json()["Result"]
        assert 0.6 <= time.monotonic() - start < LONG / 2
        assert again["ID"] == job["ID"]
        assert puller.statuses(outcome_of(again, "DELIVERED")) == ["ok"]


def test_an_outcome_throttles_the_consumer_or_a_key(puller: Puller) -> None:
    Consumer.objects.update(fair_by_key=True)
    for key in ("a", "a", "b"):
        publish(key=key)
    first, second = puller.taken(), puller.taken()
    keys = {job["Key"]: job for job in first + second}
    asked = {"ThrottleSeconds": 60, "ThrottleKey": True}
    assert puller.statuses(outcome_of(keys["a"], "DELIVERED", **asked)) == ["ok"]
    assert not puller.taken()
    publish(key="c")
    [other] = puller.taken()
    assert other["Key"] == "c"
    publish(key="c")
    assert puller.statuses(outcome_of(other, "RETRY", ThrottleSeconds=60)) == ["ok"]
    assert puller.pull(NoWait=True)["Status"]["Reason"] == "throttled"


def test_a_job_that_the_consumer_does_not_hold_throttles_nothing(puller: Puller) -> None:
    publish()
    [job] = puller.taken()
    stranger = {**job, "ID": ids.encode(ids.decode(job["ID"]) + 1)}
    named = outcome_of(stranger, "RETRY", ThrottleSeconds=60)
    assert puller.statuses(named) == ["not_found"]
    late = outcome_of(job, "RETRY", ThrottleSeconds=60)
    assert puller.statuses(outcome_of(job, "RETRY")) == ["ok"]
    assert puller.statuses(late) == ["lease_lost"]
    assert not Consumer.objects.exclude(throttled_until=None).exists()


def test_a_delayed_job_is_not_given(puller: Puller) -> None:
    publish()
    [job] = puller.taken()
    puller.ack(outcome_of(job, "RETRY", DelaySeconds=60))
    assert not puller.taken()


def test_delays_are_clamped_or_refused(puller: Puller) -> None:
    """A retry's delay is cut to an hour at most. A negative delay or a text is refused with 400."""
    for asked, kept in ((0, 0), (3600, 3600), (1e9, 3600), (10**300, 3600)):
        publish()
        [job] = puller.taken()
        assert puller.statuses(outcome_of(job, "RETRY", DelaySeconds=asked)) == ["ok"]
        [(seconds,)] = query(
            "SELECT extract(epoch FROM available_at - now())::float8 FROM pulljobs_job"
        )
        assert kept - 10 < seconds <= kept
        Job.objects.all().delete()
    publish()
    [job] = puller.taken()
    before = contents()
    for bad in (b"NaN", b"-1", b'"abc"', b"1e999", b"Infinity"):
        held = f'"ID": "{job["ID"]}", "LeaseToken": "{job["LeaseToken"]}"'.encode()
        body = b'{"Results": [{%s, "Outcome": "RETRY", "DelaySeconds": %s}]}' % (held, bad)
        assert puller.post("ack", body).status_code == 400
    assert contents() == before


def test_a_retry_without_delay_takes_that_of_the_consumer(puller: Puller) -> None:
    """A retry without delay waits as long as the consumer's strategy says for the job's retries."""
    Consumer.objects.update(retry_delays=[100.0, 300.0, 500.0], retry_jitter=0, max_retries=10)
    publish()
    waits = []
    for named in (None, 200, None, None, None):
        [job] = puller.taken()
        delay = {} if named is None else {"DelaySeconds": named}
        puller.ack(outcome_of(job, "RETRY", **delay))
        [(seconds,)] = query(
            "UPDATE pulljobs_job SET available_at = now() RETURNING"
            " (SELECT extract(epoch FROM old.available_at - now())::float8"
            " FROM pulljobs_job AS old WHERE old.id = pulljobs_job.id)"
        )
        waits.append(seconds)
    assert waits == [pytest.approx(wait, abs=50) for wait in (100, 200, 500, 1000, 1500)]


def test_a_renewal_extends_the_lease(puller: Puller) -> None:
    """A renewal without Seconds gives a full lease from now, and Seconds never shorten a lease."""
    publish()
    [job] = puller.taken()
    pass_time(timedelta(seconds=0.8 * LEASE))
    [renewed] = puller.renew(job)
    lease = Lease.objects.get()
    assert renewed.pop("LeaseExpiresAt") == lease.leased_until.isoformat().replace("+00:00", "Z")
    assert LEASE - 10 < renewed.pop("RemainingSeconds") <= LEASE
    assert renewed == {"ID": job["ID"], "Status": "ok"}
    [longer] = puller.renew(job, Seconds=200)
    assert 190 < longer["RemainingSeconds"] <= 200
    [kept] = puller.renew(job, Seconds=1)
    assert kept["RemainingSeconds"] > 180


def test_a_renewal_reports_progress_of_its_holder_only(puller: Puller) -> None:
    publish()
    [job] = puller.taken()
    shown = f"{puller.path}/job/{job['ID']}"
    assert puller.get(shown)["Progress"] is None
    held = {"ID": job["ID"], "LeaseToken": job["LeaseToken"]}
    reported = {"Done": 3, "Total": 10, "Note": "fil\u0000es"}
    answer = puller.post("renew", Leases=[{**held, "Progress": reported}])
    assert answer.json()["Results"][0]["Status"] == "ok"
    lost = {**held, "LeaseToken": "0" * 32, "Progress": {"Done": 9}}
    assert puller.post("renew", Leases=[lost]).json()["Results"][0]["Status"] == "lease_lost"
    progress = puller.get(shown)["Progress"]
    assert (progress["Done"], progress["Total"], progress["Note"]) == (3.0, 10.0, "files")
    for wrong in ({"Done": -1}, {"Done": "x"}, {"Total": 1}, {"Done": 1, "Note": 7}):
        refused = puller.post("renew", Leases=[{**held, "Progress": wrong}])
        assert refused.status_code == 400, wrong
    refused = puller.post("renew", Leases=[{**held, "Progress": {"Total": 1}}])
    assert "Done must be a number from 0:" in refused.json()["detail"]


def test_a_lease_can_be_renewed_until_its_hard_end(puller: Puller) -> None:
    """No renewal moves a lease beyond its hard end. Later ones are lost, but outcomes succeed."""
    publish()
    [job] = puller.taken()
    query("UPDATE pulljobs_lease SET hard_end = clock_timestamp() + interval '25 s'")
    query("UPDATE pulljobs_lease SET leased_until = clock_timestamp() + interval '5 s'")
    [renewed] = puller.renew(job)
    assert 0 < renewed["RemainingSeconds"] <= 25
    query("UPDATE pulljobs_lease SET hard_end = clock_timestamp()")
    assert puller.renew(job) == [{"ID": job["ID"], "Status": "lease_lost"}]
    assert puller.statuses(outcome_of(job, "DELIVERED")) == ["ok"]


def test_renewals_that_are_refused(puller: Puller) -> None:
    """Malformed renewals get 400, a wrong lease token "lease_lost", an unknown job "not_found"."""
    publish()
    [job] = puller.taken()
    before = contents()
    for seconds in (0, -1, "x", 10**9):
        held = {"ID": job["ID"], "LeaseToken": job["LeaseToken"]}
        assert puller.post("renew", Leases=[held], Seconds=seconds).status_code == 400
    assert puller.post("renew", Leases=[{}]).status_code == 400
    assert contents() == before
    other = {**job, "LeaseToken": "0" * 32}
    unknown = {**job, "ID": ids.encode(2**40)}
    statuses = [result["Status"] for result in puller.renew(other, unknown, job)]
    assert statuses == ["lease_lost", "not_found", "ok"]


def test_a_delivered_job_keeps_its_result(puller: Puller) -> None:
    """A DELIVERED outcome stores its Result in the archive, for batches and runs of workflows."""
    for _ in range(3):
        publish()
    results: tuple[Any, ...] = ({"pages": [1, "\x00"]}, False, None)
    held = [
        outcome_of(job, "DELIVERED", Result=result)
        for job, result in zip(puller.taken(Batch=3), results, strict=True)
    ]
    assert puller.statuses(*held) == puller.statuses(*held) == ["ok"] * 3
    stored = ArchivedJob.objects.order_by("job_id").values_list("result", flat=True)
    assert list(stored) == [{"pages": [1, "\N{REPLACEMENT CHARACTER}"]}, False, None]


def test_a_result_may_be_as_large_as_the_setting_permits(puller: Puller) -> None:
    """The body of an ack has room for it, even if it writes each letter as an escape."""
    publish()
    [job] = puller.taken()
    with override_settings(PULLJOBS={"MAX_RESULT_BYTES": 4 * 1024 * 1024}):
        assert puller.statuses(outcome_of(job, "DELIVERED", Result="\xe4" * 2_000_000)) == ["ok"]
    assert ArchivedJob.objects.filter(result="\xe4" * 2_000_000).exists()


@pytest.mark.parametrize("result", ["x" * 100_000, float("1e999")])
def test_a_result_that_cannot_be_stored_is_refused(result: Any, puller: Puller) -> None:
    publish()
    [job] = puller.taken()
    before = contents()
    body = json.dumps({"Results": [outcome_of(job, "DELIVERED", Result=result)]})
    answer = puller.post("ack", body.replace("Infinity", "1e999").encode())
    assert (answer.status_code, "The result " in answer.json()["detail"]) == (400, True)
    assert contents() == before
    assert puller.statuses(outcome_of(job, "DELIVERED", Result="small")) == ["ok"]


@pytest.mark.parametrize(("route", "field"), [("ack", "Results"), ("renew", "Leases")])
def test_a_misspelt_list_is_named_although_an_item_may_be_a_whole_job(
    route: str, field: str, puller: Puller
) -> None:
    """A misspelt list of items is refused with its right name, and not taken for an empty list."""
    publish()
    [job] = puller.taken()
    item = {**job, "Outcome": "DELIVERED"}
    refused = puller.post(route, json.dumps({field[:-1]: [item]}).encode())
    detail = f"There is no field {field[:-1].lower()!r} (the nearest is {field}): nothing was"
    assert (refused.status_code, detail in refused.json()["detail"]) == (400, True)
    [done] = puller.post(route, json.dumps({field: [item]}).encode()).json()["Results"]
    assert done["Status"] == "ok"


def test_a_dead_job_keeps_its_reason(puller: Puller) -> None:
    """The reason and error of a DEAD outcome are archived, and the next job of its key is free."""
    Consumer.objects.update(exclusive_keys=True)
    publish(key="k")
    publish(key="k")
    [job] = puller.taken(Batch=2)
    puller.ack(outcome_of(job, "DEAD", Reason="no such order", Error="KeyError: 17\x00"))
    archived = ArchivedJob.objects.get()
    assert (archived.state, archived.reason) == ("DEAD", "rejected")
    assert archived.error == "no such order: KeyError: 17\N{REPLACEMENT CHARACTER}"
    [following] = puller.taken(Batch=2)
    assert following["ID"] != job["ID"]


def test_a_late_ack_counts_until_the_job_is_taken_back(puller: Puller) -> None:
    Consumer.objects.update(retry_delays=[0.0])
    publish()
    publish()
    late, too_late = puller.taken(Batch=2)
    pass_time()
    assert puller.statuses(outcome_of(late, "DELIVERED")) == ["ok"]
    pulling.reap()
    assert puller.statuses(outcome_of(too_late, "DELIVERED")) == ["lease_lost"]


@pytest.mark.parametrize("is_remembered", [True, False], ids=["this process", "another process"])
def test_tokens_of_other_jobs_and_consumers_settle_nothing(
    puller: Puller, is_remembered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong lease tokens settle nothing, and a job of another consumer looks like a missing one."""
    if not is_remembered:
        monkeypatch.setattr(owned_items, "MOST_CLAIMS", 0)
    other = Puller(puller._client, puller.base, subscription("invoices", "census"))
    publish()
    publish()
    publish("invoices")
    x, y = puller.taken()[0], puller.taken()[0]
    [theirs] = other.taken()
    before = contents()
    mixed = {**y, "LeaseToken": x["LeaseToken"]}
    unknown = {**x, "ID": ids.encode(2**40)}
    nonsense = {**x, "ID": "x"}
    no_token, long_token = ({**x, "LeaseToken": text} for text in ("x", x["LeaseToken"] + "-" * 99))
    strange = (mixed, no_token, long_token, theirs, unknown, nonsense)
    statuses = puller.statuses(*(outcome_of(job, "DELIVERED") for job in strange))
    assert statuses == ["lease_lost"] * 3 + ["not_found"] * 3
    assert [result["Status"] for result in puller.renew(mixed, theirs, unknown)] == [
        "lease_lost",
        "not_found",
        "not_found",
    ]
    assert contents() == before
    other.ack(outcome_of(theirs, "DELIVERED"))
    assert puller.statuses(outcome_of(theirs, "DELIVERED")) == ["not_found"]


def test_the_process_that_claimed_a_job_does_not_read_its_owner(
    puller: Puller, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish()
    [job] = puller.taken()
    read, asked = protocol.owners_of, set[int]()

    def noted(using: str, job_ids: Collection[int]) -> Any:
        asked.update(job_ids)
        return read(using, job_ids)

    monkeypatch.setattr(protocol, "owners_of", noted)
    assert puller.statuses(outcome_of(job, "DELIVERED")) == ["ok"]
    assert not asked


@pytest.fixture
def _counts_from_none() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.mark.usefixtures("_counts_from_none")
def test_a_pull_in_an_ack_counts_as_a_pull(puller: Puller) -> None:
    """The throttle of pulls also refuses the pull in an ack, whose outcomes are settled."""
    publish()
    [job] = puller.taken()
    with override_settings(PULLJOBS={"THROTTLES": {"pull": "1/day"}}):
        acked = [puller.ack(outcome_of(job, "DELIVERED"), Pull={}) for _twice in range(2)]
        assert puller.post("pull").status_code == 429
    assert [answer["Results"][0]["Status"] for answer in acked] == ["ok", "ok"]
    pulls = [(answer["Status"]["Code"], answer["Status"]["Reason"]) for answer in acked]
    assert pulls == [(404, "no_messages"), (429, "throttled")]
    assert 86_000 < acked[1]["Status"]["RetryAfterSeconds"] <= 86_400


def test_what_was_pulled_before_the_consumer_was_turned_to_push_is_ended(puller: Puller) -> None:
    """After a change to push, jobs that were pulled can be settled, but nothing can be pulled."""
    for _ in range(3):
        publish()
    first, second = puller.taken(Batch=2)
    Consumer.objects.update(type="push")
    [renewed] = puller.renew(first, Seconds=60)
    assert renewed["Status"] == "ok"
    answer = puller.ack(outcome_of(first, "DELIVERED"), Pull={"Expires": LONG})
    assert answer["Results"] == [{"ID": first["ID"], "Status": "ok"}]
    assert (answer["Result"], answer["Status"]["Reason"]) == ([], "push_consumer")
    pushing = pulling.Puller(USING, puller.subscription.consumer, Lease.Via.PUSH).claim(1)
    assert pushing.taken is not None
    [(job, _message)] = pushing.jobs
    pushed = {"ID": ids.encode(job.id), "LeaseToken": str(pushing.taken.lease_token)}
    before = contents()
    for held in (pushed, {**second, "LeaseToken": first["LeaseToken"][::-1]}, first):
        refused = puller.post("ack", Results=[outcome_of(held, "DELIVERED")])
        assert (refused.status_code, refused.json()["code"]) == (412, "push_consumer")
        leases = [{"ID": held["ID"], "LeaseToken": held["LeaseToken"]}]
        assert puller.post("renew", Leases=leases).status_code == 412
    assert contents() == before
    assert puller.statuses(outcome_of(second, "RETRY")) == ["ok"]


def test_deliveries_are_bounded(puller: Puller) -> None:
    """If the lease of its last delivery expires, the job dies once, however often it is reaped."""
    Consumer.objects.update(max_deliveries=2, retry_delays=[0.0])
    publish()
    for deliveries in (1, 2):
        [job] = puller.taken()
        assert job["Deliveries"] == deliveries
        pass_time()
        for _ in range(5):
            pulling.reap()
    assert not puller.taken()
    assert ArchivedJob.objects.get().reason == "max_deliveries"


def test_an_ack_pulls_the_next_job(puller: Puller) -> None:
    publish()
    next_id = publish()
    [job] = puller.taken()
    answer = puller.ack(outcome_of(job, "DELIVERED"), Pull={"Batch": 5})
    assert answer["Results"] == [{"ID": job["ID"], "Status": "ok"}]
    [following] = answer["Result"]
    assert following["ID"] == ids.encode(next_id)
    assert answer["Status"]["Reason"] == "ok"
    failed = puller.ack(outcome_of(job, "DEAD"), Pull={"Expires": LONG})
    assert (failed["Result"], failed["Status"]["Reason"]) == ([], "ack_failed")
    assert puller.post("ack", Results=[], Pull={"Batch": 0}).status_code == 400
    assert puller.post("ack", Results=[], Pull=1).status_code == 400


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [({"max_waiting": 0}, 429, "max_waiting"), ({"deleted_at": Now()}, 410, "consumer_deleted")],
)
def test_an_ack_reports_its_settlements_when_its_pull_is_refused(
    fields: dict[str, Any], code: int, reason: str, puller: Puller
) -> None:
    publish()
    [job] = puller.taken()
    Consumer.objects.update(max_waiting=fields.get("max_waiting", 9))
    acking = Thread(
        lambda: puller.ack(outcome_of(job, "DELIVERED"), Pull={"Batch": 2, "Expires": LONG})
    )
    if "deleted_at" in fields:
        wait_until(lambda: waiting() == 1)
        Consumer.objects.update(**fields)
    answer = acking.result()
    assert answer["Results"] == [{"ID": job["ID"], "Status": "ok"}]
    assert answer["Result"] == []
    assert answer["Status"].pop("RetryAfterSeconds", None) == (5 if code == 429 else None)
    pending = {"PendingMessages": 2, "PendingBytes": 0}
    assert answer["Status"] == {"Code": code, "Reason": reason, **pending}


def test_the_pull_of_an_ack_waits(puller: Puller) -> None:
    start = time.monotonic()
    answer = puller.ack(Pull={"Expires": 0.3})
    assert time.monotonic() - start >= 0.3
    assert (answer["Results"], answer["Status"]["Reason"]) == ([], "timeout")


def test_good_outcomes_are_committed_next_to_bad_ones(puller: Puller) -> None:
    """An ack with stale and unknown items settles the others and reports a status for each."""
    Consumer.objects.update(retry_delays=[0.0])
    publish()
    [stale] = puller.taken()
    pass_time()
    pulling.reap()
    publish()
    valid = puller.taken(Batch=2)
    unknown = {"ID": ids.encode(2**40), "LeaseToken": stale["LeaseToken"]}
    statuses = puller.statuses(
        outcome_of(stale, "DELIVERED"),
        *(outcome_of(job, "DELIVERED") for job in valid),
        outcome_of(unknown, "DEAD"),
    )
    assert statuses == ["lease_lost", "ok", "ok", "not_found"]
    assert ArchivedJob.objects.filter(state="DELIVERED").count() == 2


def test_a_locked_row_delays_its_own_outcome_only(puller: Puller) -> None:
    """An outcome for a locked job is "locked", and its repeats in the same ack wait only once."""
    for _ in range(2):
        publish()
    [locked, free] = puller.taken(Batch=2)
    items = [outcome_of(locked, "DELIVERED"), outcome_of(free, "DELIVERED")]
    with session() as other:
        job_id = ids.decode(locked["ID"])
        other.execute("SELECT FROM pulljobs_job WHERE id = %s FOR UPDATE", [job_id])
        assert puller.statuses(*items, *items[:1] * 20) == ["locked", "ok", *["locked"] * 20]
        assert list(ArchivedJob.objects.values_list("job_id")) == [(ids.decode(free["ID"]),)]
    assert puller.statuses(*items) == ["ok", "ok"]
    assert ArchivedJob.objects.count() == 2


def test_a_locked_lease_delays_its_own_renewal_only(puller: Puller) -> None:
    for _ in range(2):
        publish()
    [locked], [free] = puller.taken(), puller.taken()
    with session() as other:
        token = locked["LeaseToken"]
        other.execute("SELECT FROM pulljobs_lease WHERE lease_token = %s FOR UPDATE", [token])
        [first, second] = puller.renew(locked, free, Seconds=200)
        assert first == {"ID": locked["ID"], "Status": "locked"}
        assert second["RemainingSeconds"] > 190
    [renewed] = puller.renew(locked, Seconds=200)
    assert renewed["RemainingSeconds"] > 190


def test_malformed_acks_change_nothing(puller: Puller) -> None:
    """If one item is malformed, the valid items of the ack are not settled either."""
    publish()
    [job] = puller.taken()
    before = contents()
    held = {"ID": job["ID"], "LeaseToken": job["LeaseToken"]}
    for bad in MALFORMED:
        answer = puller.post("ack", Results=[outcome_of(job, "DELIVERED"), {**held, **bad}])
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_body")
    too_many = [outcome_of(job, "DELIVERED")] * 101
    for results in ("x", [1], too_many):
        assert puller.post("ack", Results=results).status_code == 400
    assert contents() == before
    assert waiting() == 0
