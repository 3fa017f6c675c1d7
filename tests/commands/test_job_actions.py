"""The verbs that change jobs do what their preview announced, and record the user."""

import importlib
import re
import sys
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from pulljobs import auditing, ids
from pulljobs.management.subcommands import find_modules
from pulljobs.models import AuditEntry, Channel, Consumer, Job
from tests.commands.test_prune import Keyboard
from tests.diagnosis.commands import answer, text
from tests.factories import ConsumerFactory, JobFactory, claimed, published
from tests.sessions import contents

pytestmark = pytest.mark.django_db(transaction=True)
VERBS = {"redrive": "redriven", "kill": "killed", "requeue": "requeued", "delete": "deleted"}
RIGHT_TO_LEFT = "\u202e"


@pytest.fixture
def other(consumer: Consumer) -> Consumer:
    """Create another channel's consumer. It and `consumer` get four jobs each, two of them dead."""
    other_consumer: Consumer = ConsumerFactory.create(channel__name="news", name="mailing")
    for owner in (consumer, other_consumer):
        for reason in ("rejected", "killed"):
            make_dead(owner, reason=reason, key="a")
        published(owner)
        claimed(owner)
        published(owner)
    return other_consumer


def make_dead(consumer: Consumer, **fields: str) -> str:
    """Return the id of a new dead job with these fields."""
    job = JobFactory.create(consumer=consumer, state="DEAD")
    Job.objects.filter(pk=job.id).update(**{"reason": "rejected", **fields})
    return ids.encode(job.id)


def states(consumer: Consumer) -> list[str]:
    return sorted(Job.objects.filter(consumer=consumer).values_list("state", flat=True))


@pytest.mark.parametrize(
    ("verb", "done", "left"),
    [
        ("redrive", 2, ["INFLIGHT", "QUEUED", "QUEUED", "QUEUED"]),
        ("kill", 2, ["DEAD", "DEAD", "DEAD", "DEAD"]),
        ("requeue", 1, ["DEAD", "DEAD", "QUEUED", "QUEUED"]),
        ("delete", 2, ["INFLIGHT", "QUEUED"]),
    ],
)
def test_a_verb_acts_on_the_jobs_of_its_filter_in_audited_batches(
    other: Consumer, verb: str, done: int, left: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "BATCH", 1)
    neighbour = Consumer.objects.get(name="invoicing")
    before = states(neighbour)
    previewed, _code = answer(verb, "--only", "news/mailing", "--dry-run")
    assert (previewed["jobs"], previewed[VERBS[verb]]) == (done, 0)
    result, code = answer(verb, "--only", "news/mailing", "--yes")
    assert (code, result[VERBS[verb]], result["left_alone"]) == (0, done, 0)
    assert states(other) == left
    assert states(neighbour) == before
    entry = AuditEntry.objects.get()
    assert (str(entry), entry.done, entry.expected) == (result["entry"], done, done)
    assert "command line" in entry.by
    assert entry.batches.count() >= done


@pytest.mark.parametrize("verb", VERBS)
def test_a_dry_run_changes_nothing(other: Consumer, verb: str) -> None:
    before = contents()
    assert "would be" in text(verb, "--all", "--dry-run")
    assert contents() == before


@pytest.mark.parametrize(
    ("flags", "jobs"),
    [
        (["--reason", "killed"], 2),
        (["--key", "a"], 4),
        (["--key", "b"], 0),
        (["--newer-than", "1h"], 4),
        (["--older-than", "1h"], 0),
        (["--only", "news", "--reason", "rejected"], 1),
    ],
)
def test_all_filters_have_to_fit(other: Consumer, flags: list[str], jobs: int) -> None:
    assert answer("redrive", *flags, "--dry-run")[0]["jobs"] == jobs


def test_a_state_limits_a_kill(other: Consumer) -> None:
    """With `--state QUEUED`, a kill leaves running jobs alone."""
    assert answer("kill", "--only", "news", "--state", "QUEUED", "--yes")[0]["killed"] == 1
    assert "INFLIGHT" in states(other)


def test_jobs_are_named_by_id_and_those_of_another_state_are_left_alone(other: Consumer) -> None:
    dead = list(Job.objects.filter(consumer=other, state="DEAD").values_list("pk", flat=True))
    queued = Job.objects.get(consumer=other, state="QUEUED").pk
    result, code = answer("redrive", ids.encode(dead[0]), str(queued), "--yes")
    assert (code, result["redriven"], result["left_alone"]) == (0, 1, 1)
    assert Job.objects.filter(state="DEAD", pk__in=dead).count() == 1


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_asks_for_confirmation_and_obeys_a_no(
    other: Consumer,
    verb: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = contents()
    monkeypatch.setattr(sys, "stdin", Keyboard("\n"))
    call_command("pulljobs", verb, "--all", stdout=StringIO())
    question = rf"{verb.capitalize()} \d .* jobs of all consumers\? \[y/N\]"
    assert re.search(question, capsys.readouterr().err)
    assert contents() == before


def test_a_verb_without_a_filter_needs_a_flag_for_all_jobs(other: Consumer) -> None:
    with pytest.raises(CommandError, match="use --all"):
        call_command("pulljobs", "redrive", "--yes")
    assert answer("redrive", "--all", "--yes")[0]["redriven"] == 4


@pytest.mark.parametrize(
    ("flags", "seconds"), [(["--for", "2h"], 7200), ([], 36_500 * 86_400)], ids=["2h", "endless"]
)
def test_a_pause_ends_at_its_time_or_with_resume(
    consumer: Consumer, flags: list[str], seconds: float
) -> None:
    assert "would be paused" in text("pause", "orders", "--dry-run", *flags)
    assert not Channel.objects.exclude(paused_until=None).exists()
    answer("pause", "orders", "orders/invoicing", *flags, "--yes")
    for row in (Channel.objects.get(), Consumer.objects.get()):
        assert row.paused_until is not None
        left = (row.paused_until - timezone.now()).total_seconds()
        assert left == pytest.approx(seconds, abs=120)
    answer("resume", "orders", "--yes")
    assert Channel.objects.get().paused_until is None
    assert Consumer.objects.get().paused_until is not None
    acts = AuditEntry.objects.order_by("pk").values_list("act", "subject")
    assert list(acts) == [
        ("pause", "channel orders"),
        ("pause", "consumer orders/invoicing"),
        ("resume", "channel orders"),
    ]


def test_a_pause_in_the_past_is_refused(consumer: Consumer) -> None:
    past = (timezone.now() - timedelta(hours=1)).isoformat()
    for end in (f"--until={past}", "--for=0s"):
        with pytest.raises(CommandError, match="must be in the future"):
            call_command("pulljobs", "pause", "orders", end, "--yes")
    assert not Channel.objects.exclude(paused_until=None).exists()


def test_the_list_shows_the_newest_jobs_first(other: Consumer) -> None:
    every = list(Job.objects.order_by("-pk").values_list("pk", flat=True))
    content, code = answer("list", "--limit", "3")
    assert (code, content["is_more"]) == (0, True)
    assert [job["job"] for job in content["jobs"]] == [ids.encode(pk) for pk in every[:3]]
    dead, _code = answer("list", "--state", "DEAD", "--only", "news", "--reason", "killed")
    assert [(job["consumer"], job["reason"]) for job in dead["jobs"]] == [
        ("news/mailing", "killed")
    ]
    assert "Jobs of all consumers with the key b: none." in text("list", "--key", "b")


def test_text_that_changes_its_direction_is_escaped(consumer: Consumer) -> None:
    """Characters that change the direction of text, and so can disguise it, are escaped."""
    make_dead(consumer, error=f"a{RIGHT_TO_LEFT}b", key="c\u2066d")
    shown = text("list")
    assert RIGHT_TO_LEFT not in shown
    assert "a\\u202eb" in shown
    assert "c\\u2066d" in shown


def test_the_examples_of_the_help_are_valid(consumer: Consumer) -> None:
    job = make_dead(consumer)
    ConsumerFactory.create(channel__name="news")
    for verb in (*VERBS, "list", "pause", "resume"):
        module = importlib.import_module(find_modules()[verb])
        examples = re.findall(f"^    {verb} (.+)$", module.__doc__ or "", re.MULTILINE)
        assert examples
        for example in examples:
            flags = example.replace("d3k2v1g0000a1b2c3d4g", job).replace("--yes", "").split()
            assert answer(verb, *flags, *["--dry-run"] * (verb != "list"))[1] == 0
