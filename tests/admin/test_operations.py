"""Acts of operators on single jobs in the admin."""

import django
import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from pulljobs import ids, operating
from pulljobs.admin.operations import OPERATIONS
from pulljobs.models import ArchivedJob, AuditEntry, Consumer, Job
from pulljobs.states import LIVE, TRANSITIONS, Event, State
from tests.admin.conftest import browser_of
from tests.admin.pages import act, listing, offered, page, post_form, read_page
from tests.factories import JobFactory

BY_HAND = sorted(OPERATIONS)
AT_ONCE = [event for event in BY_HAND if event is not Event.RESCHEDULE]
"""Events whose action applies at once, without a form to fill in."""
SLUGS = {event: operation.slug for event, operation in OPERATIONS.items()}


def test_the_admin_offers_every_event_of_the_operator() -> None:
    assert set(OPERATIONS) == {
        event for event, transition in TRANSITIONS.items() if "operator" in transition.actor
    }


@pytest.mark.parametrize("state", sorted(LIVE))
def test_only_events_that_the_state_machine_allows_are_offered(
    state: State, operator: Client, consumer: Consumer
) -> None:
    """Pages of a job and of one state offer the operator's events that the table has for it."""
    job = JobFactory.create(state=state, consumer=consumer)
    allowed = {SLUGS[event] for event in BY_HAND if state in TRANSITIONS[event].sources}
    assert offered(read_page(operator, page("job", job.id))) == allowed
    assert offered(read_page(operator, listing("job"), state=state.value)) == allowed
    assert offered(read_page(operator, listing("job"))) == set(SLUGS.values())


@pytest.mark.parametrize("event", AT_ONCE)
def test_an_action_reports_every_job(event: Event, operator: Client, consumer: Consumer) -> None:
    """Each message names a job and, if the job did not change, the reason."""
    made = {state: JobFactory.create(state=state, consumer=consumer).id for state in State}
    before = dict(Job.objects.values_list("id", "state"))
    messages = act(operator, SLUGS[event], list(made.values()))
    after = dict(Job.objects.values_list("id", "state"))
    for state, job_id in made.items():
        [message] = [message for message in messages if ids.encode(job_id) in message]
        if state in TRANSITIONS[event].sources:
            assert message.startswith(f"{SLUGS[event]}: ")
            assert after.get(job_id) == TRANSITIONS[event].target
        else:
            assert message.startswith(f"{SLUGS[event]} did not change ")
            assert (f"it is {state}" in message) == (state != State.DELIVERED)
            assert after.get(job_id) == before.get(job_id)


def test_a_job_that_no_longer_matches_the_filter_is_reported(
    operator: Client, consumer: Consumer
) -> None:
    """The action reports a job that another operator redrove after the list was read."""
    job = JobFactory.create(state=State.DEAD, consumer=consumer)
    operating.redrive([job.id])
    [message] = act(operator, Event.REDRIVE, [job.id], "?state=DEAD")
    assert "it is QUEUED" in message


def test_a_killed_job_names_the_operator(operator: Client, consumer: Consumer) -> None:
    job = JobFactory.create(state=State.INFLIGHT, consumer=consumer)
    act(operator, Event.KILL, [job.id])
    archived = ArchivedJob.objects.get(job_id=job.id)
    assert (archived.reason, archived.error) == ("killed", "killed by olga")
    [entry] = AuditEntry.objects.all()
    assert (entry.by, entry.act, entry.batches.get().done) == ("olga", "kill", [job.id])
    assert "killed by olga" in read_page(operator, page("job", job.id))


@pytest.mark.parametrize("event", AT_ONCE)
def test_a_button_acts_once(event: Event, operator: Client, consumer: Consumer) -> None:
    source = sorted(TRANSITIONS[event].sources)[0]
    job = JobFactory.create(state=source, consumer=consumer)
    [message] = post_form(operator, page("job", job.id), {"_event": SLUGS[event]})
    assert message == f"{SLUGS[event]}: {ids.encode(job.id)}."
    [message] = post_form(operator, page("job", job.id), {"_event": SLUGS[event]})
    assert "did not change" in message or "doesn’t exist" in message


@pytest.mark.parametrize("event", BY_HAND)
@pytest.mark.parametrize("via", ["action", "button"])
def test_without_the_permission_nothing_happens(
    event: Event, via: str, reader: Client, consumer: Consumer
) -> None:
    job = JobFactory.create(state=sorted(TRANSITIONS[event].sources)[0], consumer=consumer)
    before = list(Job.objects.values())
    assert not offered(read_page(reader, listing("job")) + read_page(reader, page("job", job.id)))
    if via == "button":
        assert reader.post(page("job", job.id), {"_event": SLUGS[event]}).status_code == 403
    else:
        data = {"action": SLUGS[event], "_selected_action": [job.id]}
        reader.post(listing("job"), data)
    assert list(Job.objects.values()) == before


@pytest.mark.parametrize("slug", SLUGS.values())
def test_each_act_needs_its_own_permission(slug: str, consumer: Consumer) -> None:
    user = User.objects.create_user("paul", is_staff=True)
    names = [f"{slug}_job", "view_job"]
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    JobFactory.create(consumer=consumer)
    browser = browser_of(user)
    assert offered(read_page(browser, listing("job"))) == {slug}
    for other in SLUGS.values():
        answer = browser.get(reverse("admin:pulljobs_job_all", args=[other]))
        assert answer.status_code == (200 if other == slug else 403)


@pytest.mark.parametrize("slug", SLUGS.values())
def test_acts_need_the_permission_to_view_jobs(slug: str, consumer: Consumer) -> None:
    """Users who may not view jobs may not act on them, because previews and results show jobs."""
    user = User.objects.create_user("paul", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename=f"{slug}_job"))
    job = JobFactory.create(state=State.DEAD, consumer=consumer)
    before = list(Job.objects.values())
    browser = browser_of(user)
    for_all = reverse("admin:pulljobs_job_all", args=[slug])
    assert browser.get(for_all).status_code == 403
    assert browser.post(f"{for_all}?chosen={job.id}").status_code == 403
    assert browser.post(page("job", job.id), {"_event": slug}).status_code == 403
    data = {"action": slug, "_selected_action": [job.id], "index": 0}
    assert browser.post(listing("job"), data).status_code == 403
    assert list(Job.objects.values()) == before
    assert not AuditEntry.objects.exists()


def test_an_id_that_no_job_can_have_changes_nothing(operator: Client) -> None:
    refused = {403} if django.VERSION < (6, 1) else {302}  # 6.1 redirects as for a GET
    assert operator.post(page("job", 2**63), {"_event": "kill"}).status_code in refused
    act(operator, Event.KILL, [2**63])
    assert not AuditEntry.objects.filter(done__gt=0).exists()


def test_an_event_that_is_not_the_operator_s_is_refused(
    operator: Client, consumer: Consumer
) -> None:
    job = JobFactory.create(consumer=consumer)
    for event in ("claim", "nonsense"):
        assert operator.post(page("job", job.id), {"_event": event}).status_code == 403
