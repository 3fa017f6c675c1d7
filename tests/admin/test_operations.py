"""What operators do to jobs from the admin, row by row."""

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from pulljobs import ids, operating
from pulljobs.admin.operations import OPERATIONS
from pulljobs.models import ArchivedJob, AuditEntry, Consumer, Job
from pulljobs.states import LIVE, TRANSITIONS, Event, State
from tests.admin.conftest import browser_of
from tests.admin.pages import act, listing, offered, page, read, told
from tests.factories import JobFactory

BY_HAND = sorted(OPERATIONS)
AT_ONCE = [event for event in BY_HAND if event is not Event.RESCHEDULE]
"""Others ask for something first."""
WORDS = {event: operation.slug for event, operation in OPERATIONS.items()}


def test_they_are_the_operator_s_events_of_the_table() -> None:
    assert set(OPERATIONS) == {
        event for event, transition in TRANSITIONS.items() if "operator" in transition.actor
    }


@pytest.mark.parametrize("state", sorted(LIVE))
def test_only_what_the_table_allows_is_offered(
    state: State, operator: Client, consumer: Consumer
) -> None:
    """As buttons of a job, and as actions where the list shows one state."""
    job = JobFactory.create(state=state, consumer=consumer)
    allowed = {WORDS[event] for event in BY_HAND if state in TRANSITIONS[event].sources}
    assert offered(read(operator, page("job", job.id))) == allowed
    assert offered(read(operator, listing("job"), state=state.value)) == allowed
    assert offered(read(operator, listing("job"))) == set(WORDS.values())


@pytest.mark.parametrize("event", AT_ONCE)
def test_actions_tell_of_each_row(event: Event, operator: Client, consumer: Consumer) -> None:
    """Which changed, and which were in no state for it and why, also those that are gone."""
    made = {state: JobFactory.create(state=state, consumer=consumer).id for state in State}
    before = dict(Job.objects.values_list("id", "state"))
    messages = act(operator, WORDS[event], list(made.values()))
    after = dict(Job.objects.values_list("id", "state"))
    for state, job_id in made.items():
        [message] = [message for message in messages if ids.encode(job_id) in message]
        if state in TRANSITIONS[event].sources:
            assert message.startswith(f"{WORDS[event]}: ")
            assert after.get(job_id) == TRANSITIONS[event].target
        else:
            assert message.startswith(f"{WORDS[event]} did not change ")
            assert (f"it is {state}" in message) == (state != State.DELIVERED)
            assert after.get(job_id) == before.get(job_id)


def test_a_row_that_left_the_list_s_filter_is_told_of(operator: Client, consumer: Consumer) -> None:
    """It was DEAD when the list was made, and somebody redrove it since."""
    job = JobFactory.create(state=State.DEAD, consumer=consumer)
    operating.redrive([job.id])
    [message] = act(operator, Event.REDRIVE, [job.id], "?state=DEAD")
    assert "it is QUEUED" in message


def test_killing_names_who_did_it(operator: Client, consumer: Consumer) -> None:
    job = JobFactory.create(state=State.INFLIGHT, consumer=consumer)
    act(operator, Event.KILL, [job.id])
    archived = ArchivedJob.objects.get(job_id=job.id)
    assert (archived.reason, archived.error) == ("killed", "killed by olga")
    [entry] = AuditEntry.objects.all()
    assert (entry.by, entry.act, entry.batches.get().done) == ("olga", "kill", [job.id])
    assert "killed by olga" in read(operator, page("job", job.id))


@pytest.mark.parametrize("event", AT_ONCE)
def test_buttons(event: Event, operator: Client, consumer: Consumer) -> None:
    source = sorted(TRANSITIONS[event].sources)[0]
    job = JobFactory.create(state=source, consumer=consumer)
    [message] = told(operator, page("job", job.id), {"_event": WORDS[event]})
    assert message == f"{WORDS[event]}: {ids.encode(job.id)}."
    [message] = told(operator, page("job", job.id), {"_event": WORDS[event]})
    assert "did not change" in message or "doesn’t exist" in message


@pytest.mark.parametrize("event", BY_HAND)
@pytest.mark.parametrize("via", ["action", "button"])
def test_without_the_permission_nothing_happens(
    event: Event, via: str, reader: Client, consumer: Consumer
) -> None:
    job = JobFactory.create(state=sorted(TRANSITIONS[event].sources)[0], consumer=consumer)
    before = list(Job.objects.values())
    assert not offered(read(reader, listing("job")) + read(reader, page("job", job.id)))
    if via == "button":
        assert reader.post(page("job", job.id), {"_event": WORDS[event]}).status_code == 403
    else:
        data = {"action": WORDS[event], "_selected_action": [job.id]}
        reader.post(listing("job"), data)
    assert list(Job.objects.values()) == before


@pytest.mark.parametrize("word", WORDS.values())
def test_each_needs_its_own_permission(word: str, consumer: Consumer) -> None:
    user = User.objects.create_user("paul", is_staff=True)
    names = [f"{word}_job", "view_job"]
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    JobFactory.create(consumer=consumer)
    browser = browser_of(user)
    assert offered(read(browser, listing("job"))) == {word}
    for other in WORDS.values():
        answer = browser.get(reverse("admin:pulljobs_job_all", args=[other]))
        assert answer.status_code == (200 if other == word else 403)


@pytest.mark.parametrize("word", WORDS.values())
def test_who_acts_must_be_allowed_to_look(word: str, consumer: Consumer) -> None:
    """Or a preview, and what an act tells of each job, would show what no page does."""
    user = User.objects.create_user("paul", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename=f"{word}_job"))
    job = JobFactory.create(state=State.DEAD, consumer=consumer)
    before = list(Job.objects.values())
    browser = browser_of(user)
    for_all = reverse("admin:pulljobs_job_all", args=[word])
    assert browser.get(for_all).status_code == 403
    assert browser.post(f"{for_all}?chosen={job.id}").status_code == 403
    assert browser.post(page("job", job.id), {"_event": word}).status_code == 403
    data = {"action": word, "_selected_action": [job.id], "index": 0}
    assert browser.post(listing("job"), data).status_code == 403
    assert list(Job.objects.values()) == before
    assert not AuditEntry.objects.exists()


def test_an_id_that_no_job_can_have_is_nobody_s(operator: Client) -> None:
    assert operator.post(page("job", 2**63), {"_event": "kill"}).status_code == 403
    act(operator, Event.KILL, [2**63])
    assert not AuditEntry.objects.filter(done__gt=0).exists()


def test_an_event_that_is_not_an_operator_s(operator: Client, consumer: Consumer) -> None:
    job = JobFactory.create(consumer=consumer)
    for event in ("claim", "nonsense"):
        assert operator.post(page("job", job.id), {"_event": event}).status_code == 403
