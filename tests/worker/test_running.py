"""Start of a worker: the consumers that it serves, when it ends by itself, and refusals."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import Any, assert_type

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from pulljobs import handlers, jobs
from pulljobs.errors import ConfigurationError
from pulljobs.handlers import AckPolicy, handler
from pulljobs.models import ArchivedJob, Channel, Consumer, Job, Node, PullWaiter
from pulljobs.publishing import publish, publish_many
from pulljobs.worker import shared_state, subscriptions
from pulljobs.workflows import workflow
from tests import second
from tests.factories import ConsumerFactory
from tests.handling import registry_of_its_own
from tests.sessions import wait_until
from tests.worker.processes import Stage

processes = pytest.mark.processes


def sends(order_id: int, email: str) -> None: ...


@wraps(sends)
def wrapping(job: Any) -> None: ...


class Copies:
    """Functions of one name in one module, as a copied handler and its original."""

    def handle(job: Any) -> None: ...

    handle_first = handle

    def handle(job: Any) -> None: ...  # type: ignore[no-redef]


@processes
def test_a_burst_drains_the_queue_and_ends(stage: Stage) -> None:
    stage.consumer(retry_strategy="constant:60")
    every = stage.publish(300)
    [failed] = stage.publish(fail="no such order")
    worker = stage.worker("--burst")
    assert worker.ended() == 0
    assert set(ArchivedJob.objects.values_list("job_id", flat=True)) == set(every)
    assert jobs.get(every[0]).result == "run 1"
    view = jobs.get(failed)
    assert (view.state, view.retry_count) == ("QUEUED", 1)
    assert "ValueError: no such order" in (view.error or "")
    assert "no such order" not in worker.log, "errors may quote payloads"
    assert set(stage.runs().values()) == {1}
    node = Node.objects.get()
    assert node.stopped_at is not None
    assert set(ArchivedJob.objects.values_list("node_id", flat=True)) == {node.id}
    assert not PullWaiter.objects.exists()


@processes
def test_the_log_names_the_served_consumers_and_the_failed_job(stage: Stage) -> None:
    stage.consumer(retry_strategy="none")
    [failed] = stage.publish(fail="no such order")
    worker = stage.worker("--burst", "--only", "script/plain", "--concurrency", "2")
    assert worker.ended() == 0
    lines = worker.log.splitlines()
    assert lines[0] == "Serving script/plain: 1 process of 2 threads."
    assert f"Job {failed} of script/plain failed: ValueError" in lines
    assert stage.worker("--burst", "--verbosity", "0").ended() == 0
    assert "Serving" not in stage.workers[-1].log


@processes
def test_a_burst_waits_for_running_jobs(stage: Stage) -> None:
    stage.consumer()
    [job] = stage.publish(seconds=1.5)
    assert stage.worker("--burst").ended() == 0
    assert jobs.get(job).state == "DELIVERED"


@processes
def test_only_the_named_consumers_are_served(stage: Stage) -> None:
    consumer = stage.consumer()
    neighbour = ConsumerFactory.create(channel__name="other", name="plain")
    [mine] = stage.publish()
    publish("other", b"")
    assert stage.worker("--burst", "--only", "other").ended() == 0
    assert list(Job.objects.values_list("consumer_id", flat=True)) == [consumer.pk]
    publish("other", b"")
    assert stage.worker("--burst", "--only", "script/plain").ended() == 0
    assert list(Job.objects.values_list("consumer_id", flat=True)) == [neighbour.pk]
    assert jobs.get(mine).state == "DELIVERED"


@processes
def test_excluded_consumers_are_not_served_and_the_worker_has_its_id(stage: Stage) -> None:
    stage.consumer()
    neighbour = ConsumerFactory.create(channel__name="other", name="plain")
    stage.publish()
    publish("other", b"")
    worker = stage.worker("--burst", "--exclude", "other/plain", "--worker-id", "night")
    assert worker.ended() == 0
    assert list(Job.objects.values_list("consumer_id", flat=True)) == [neighbour.pk]
    assert "as night: 1 process" in worker.log
    assert Node.objects.get().name.startswith("night:")


@pytest.mark.parametrize("flags", [{}, {"push": False}])
@pytest.mark.django_db
def test_an_unknown_name_is_not_excluded_silently(flags: dict[str, Any]) -> None:
    with registry_of_its_own():
        handlers.handler(channel="script", consumer="plain")(print)
        with pytest.raises(CommandError, match="No handler serves nothing"):
            call_command("runpullworker", exclude=["nothing"], **flags)


@pytest.mark.parametrize("exclude", ["orders", "orders/invoicing"])
def test_flags_that_leave_nothing_to_serve_are_refused(exclude: str) -> None:
    with registry_of_its_own():
        handler(channel="orders", consumer="invoicing")(print)
        with pytest.raises(CommandError, match="leaves nothing of ONLY: orders/invoicing"):
            call_command("runpullworker", only=["orders/invoicing"], exclude=[exclude])


@processes
def test_consumers_are_created_once_and_not_changed_later(stage: Stage) -> None:
    assert stage.worker("--burst").ended() == 0
    made = Consumer.objects.get(channel__name="script", name="plain")
    Consumer.objects.filter(pk=made.pk).update(max_retries=17)
    assert stage.worker("--burst").ended() == 0
    assert Consumer.objects.get(pk=made.pk).max_retries == 17
    assert {"script", "other"} <= set(Channel.objects.values_list("name", flat=True))


@processes
def test_consumers_of_type_push_only_are_refused_without_a_restart(stage: Stage) -> None:
    stage.consumer(type=Consumer.Type.PUSH)
    worker = stage.worker("--no-push", "--only", "script")
    assert worker.ended() == shared_state.MISCONFIGURED
    assert "type push" in worker.log


@processes
def test_one_consumer_does_not_starve_another(stage: Stage) -> None:
    stage.consumer()
    ConsumerFactory.create(channel__name="other", name="plain")
    stage.publish(200, seconds=0.02)
    publish_many("other", [b""] * 20)
    worker = stage.worker("--concurrency", "2", "--fetch-batch", "5")
    last = stage.wait_for("other", 20)[-1]
    assert len([line for line in stage.history("ended") if line.at < last.at]) < 100
    worker.stop()


def test_no_handler_is_a_clear_error() -> None:
    with registry_of_its_own(), pytest.raises(CommandError, match=r"register one with @pulljobs"):
        call_command("runpullworker", push=False)


@pytest.mark.django_db
def test_unknown_name_is_a_clear_error() -> None:
    with registry_of_its_own():
        handler(channel="orders", consumer="invoicing")(print)
        with pytest.raises(CommandError, match=r"serves nothing: there are .* orders/invoicing"):
            call_command("runpullworker", only=["nothing"])


def test_a_decorated_function_keeps_its_type() -> None:
    def count_units(job: object) -> int:
        return 1

    with registry_of_its_own():
        decorated = handler(channel="orders", consumer="invoicing")(count_units)
    assert_type(decorated(None), int)  # mypy checks this line.
    assert decorated is count_units


def test_two_handlers_for_one_consumer_are_refused() -> None:
    with registry_of_its_own():
        handler(channel="orders", consumer="invoicing")(print)
        handler(channel="orders", consumer="invoicing")(print)
        with pytest.raises(ConfigurationError, match=r"'invoicing' of channel 'orders' has two"):
            handler(channel="orders", consumer="invoicing")(repr)


def test_a_module_that_failed_may_be_imported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second import of a failing module raises its true error, not one of a repeated handler."""
    text = """
from pulljobs.handlers import handler

@handler(channel="orders", consumer="invoicing")
def invoice(job): ...

import missing_library
"""
    (tmp_path / "failing_handlers.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with registry_of_its_own():
        for _import in range(2):
            with pytest.raises(ModuleNotFoundError, match="missing_library"):
                import_module("failing_handlers")


def test_two_functions_of_one_name_are_two_handlers() -> None:
    """A second function of the same module and name is refused, as it may be a copied handler."""
    with registry_of_its_own():
        for decorate in (handler, workflow):
            at: Any = decorate(channel="orders", consumer=decorate.__name__)
            at(Copies.handle_first)
            with pytest.raises(ConfigurationError, match="two handlers"):
                at(Copies.handle)


def test_what_is_no_function_whose_call_runs_it_is_refused() -> None:
    def stream(job: object) -> Iterator[None]:
        yield

    for decorate in (handler, workflow):
        at: Any = decorate(channel="orders", consumer="invoicing")
        with registry_of_its_own():
            with pytest.raises(ConfigurationError, match="is above 'text', which is no function"):
                at("text")
            with pytest.raises(ConfigurationError, match="stream is a generator, of which a call"):
                at(stream)
            for function in (sends, lambda: None, lambda *, job: None):
                with pytest.raises(ConfigurationError, match=r"takes \(.*\), but @.* calls it"):
                    at(function)
            assert list(handlers.registered()) == []


@pytest.mark.parametrize("function", [wrapping, print, partial(sends, email=""), lambda *job: None])
def test_every_function_that_takes_one_argument_may_be_a_handler(
    function: Callable[..., Any],
) -> None:
    """Every function that takes one argument is accepted as a handler, also behind a decorator."""
    with registry_of_its_own():
        handler(channel="orders", consumer="invoicing")(function)
        assert len(list(handlers.registered())) == 1


def test_ack_first_and_transactional_is_refused() -> None:
    with registry_of_its_own(), pytest.raises(ConfigurationError, match="transactional and ack"):
        handler(channel="c", consumer="c", transactional=True, ack_policy=AckPolicy.ACK_FIRST)(
            print
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_retires": 3}, "'max_retires'.* did you mean 'max_retries'"),
        ({"transactionl": True}, "did you mean 'transactional'"),
        ({"token_digest": ""}, "'token_digest', which is neither"),
        ({"retry_strategy": "constant"}, "'constant' is no retry strategy: write none, constant"),
        ({"retry_strategy": [5, 10]}, r"retry_strategy must be of type str, not \[5, 10\]"),
        ({"lease_duration": 30}, "lease_duration must be of type timedelta, not 30"),
        ({"lease_duration": timedelta(0)}, "lease_duration: It must be at least 1 s"),
        ({"lease_duration": None}, "lease_duration must be of type timedelta, not None"),
        ({"lease_duration": timedelta.max}, "lease_duration: It must be .* at most 100 years"),
        ({"protocol_lease_duration": timedelta(0)}, "protocol_lease_duration: It must be above 0"),
        (
            {"protocol_lease_duration": timedelta.max},
            "protocol_lease_duration: It must be .* at most 100 years",
        ),
        ({"max_total_delay": timedelta(-1)}, "max_total_delay: It must be from 0 to 100 years"),
        ({"max_total_delay": timedelta.max}, "max_total_delay: It must be from 0 to 100 years"),
        ({"max_retries": -3}, "max_retries: .*greater than or equal to 0"),
        ({"max_retries": True}, "max_retries must be of type int, not True"),
        ({"max_deliveries": 0}, "max_deliveries: It must be at least 1"),
        ({"type": "push"}, "callback_url: A push consumer needs the URL to push to"),
        ({"retry_jitter": 7}, "retry_jitter: It must be from 0 to 1"),
        ({"max_in_flight": 0}, "max_in_flight: It must be at least 1"),
        ({"rate": 5}, "rate must be of type str, not 5"),
        ({"rate": "0/m"}, "rate: '0/m' allows no job"),
        ({"rate": "-5/m"}, "rate: '-5/m' is no rate"),
        ({"rate": "9999999/s"}, "rate: '9999999/s' is above 1,000,000 a second"),
        ({"rate": "5/s", "rate_burst": 0}, "rate_burst: It must be from 1 to 1000000"),
        ({"rate_burst": 5}, "rate_burst: It must be .* needs a rate"),
        ({"key_overflow": "drop"}, "key_overflow: .*'drop' is not a valid choice"),
        ({"key_overflow": "replace"}, "key_overflow: It needs a max_queued_per_key of 1 or more"),
        ({"key_limit_counts": "live"}, "key_limit_counts: It needs a max_queued_per_key"),
        ({"type": "pusj"}, "type: .*'pusj' is not a valid choice"),
        ({"consumer": "a/b"}, "'a/b': The id must have 1 to 255 characters, without slashes"),
        ({"channel": 5}, "5: The id must have 1 to 255 characters, without slashes"),
        ({"channel": "a\ud800"}, "The id must have 1 to 255 characters, without slashes"),
        ({"channel": ""}, "'': The id must have 1 to 255 characters"),
        ({"timeout": 30}, "timeout must be a timedelta above 0, not 30"),
        ({"timeout": timedelta.max}, "timeout must be at most 100 years, not"),
        ({"on_giving_up": "nix"}, "on_giving_up must be a function, not 'nix'"),
        ({"transactional": "no"}, "transactional must be True or False, not 'no'"),
        ({"backoff": None}, "backoff must be True or False, not None"),
        ({"ack_policy": "ACK"}, "'ACK' is no ack_policy: use one of nack_on_error"),
    ],
)
def test_unsuitable_options_are_refused_at_once_with_the_name_of_the_handler(
    options: dict[str, Any], message: str
) -> None:
    with registry_of_its_own():
        with pytest.raises(ConfigurationError, match=rf"builtins\.print.*{message}"):
            handler(**{"channel": "c", "consumer": "c"} | options)(print)
        handler(channel="c", consumer="c", retry_strategy="none", title="C")(repr)


@pytest.mark.parametrize(
    ("flag", "value"),
    [("concurrency", 0), ("max_held", 2), ("flush_interval", 0), ("heartbeat_interval", 30)],
)
def test_flags_out_of_bounds_are_refused(flag: str, value: int) -> None:
    with registry_of_its_own():
        handler(channel="orders", consumer="invoicing")(print)
        with pytest.raises(CommandError, match=flag.upper()):
            call_command("runpullworker", **{flag: value})


def test_a_worker_without_handlers_and_without_the_packages_of_push_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscriptions, "can_deliver", lambda: False)
    with registry_of_its_own(), pytest.raises(CommandError, match="There is no handler"):
        call_command("runpullworker")


@pytest.mark.parametrize(
    ("given", "error"), [({}, "There is no handler"), ({"CONCURENCY": 4}, "did you mean")]
)
def test_a_worker_checks_its_settings_and_loads_no_urls(given: dict[str, int], error: str) -> None:
    with (
        registry_of_its_own(),
        override_settings(ROOT_URLCONF="no.such.module", PULLJOBS=given),
        pytest.raises(CommandError, match=error),
    ):
        call_command("runpullworker", push=False, skip_checks=False)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e12", "soon", ""])
def test_a_flag_that_is_no_number_of_seconds_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match=f"{text!r} is no number of seconds"):
        call_command("runpullworker", f"--flush-interval={text}")


@processes
def test_a_worker_that_starts_before_its_database_waits_for_it_in_one_line_a_time(
    stage: Stage,
) -> None:
    worker = stage.worker(**{"JOBS_DATABASE" if second.IS_ON else "WORKER_DATABASE": "nowhere"})
    wait_until(lambda: worker.log.count("The database fails") > 1)
    assert 'database "nowhere" does not exist' in worker.log
    assert worker.stop() == 0
    assert "Traceback" not in worker.log
    assert "ended with" not in worker.log


@processes
@pytest.mark.parametrize("flags", [["--burst"], ["--only", "script"]])
def test_a_database_without_migrations_ends_the_worker_with_instructions(
    stage: Stage, flags: list[str]
) -> None:
    """A worker whose database lacks migrations ends with advice, and restarts no child for ever."""
    name = "JOBS_DATABASE" if second.IS_ON else "WORKER_DATABASE"
    worker = stage.worker(*flags, **{name: "postgres"})
    assert worker.ended() in (1, shared_state.MISCONFIGURED)
    assert "lacks a migration" in worker.log
    assert "run manage.py migrate" in worker.log
    assert "Traceback" not in worker.log


@processes
def test_a_worker_names_the_formats_that_it_cannot_read_once(stage: Stage) -> None:
    worker = stage.worker(PGOPTIONS="-c datestyle=SQL -c intervalstyle=sql_standard")
    assert worker.ended() == shared_state.MISCONFIGURED
    assert worker.log.count("set datestyle to 'ISO' and intervalstyle to 'postgres'") == 1
    assert "Traceback" not in worker.log
