"""Table of the tests that run the code blocks of each page: a block that is not in it fails.

Kinds of blocks, by the text behind the fence:

    python      a module, named by its first line
    sh          commands, run as they stand
    sql         run
    json, http  answers and headers, compared with those of the commands
    py          Python of a system that readers come from: it has to compile, and is not run
    text        what commands print, compared with what they printed
    yaml        a configuration file, whose fields are compared with what is served
    ini         a configuration file, read by its reader, whose commands are parsed
    console     commands behind `$ ` that a reader runs and a test does not, because they take
                hours, the network or a cluster: the parser of each has to accept them
"""

from typing import Final

from example_project.state import BASE_DIR
from tests.guides import blocks, pages

PARSED: Final = {"console", "py"}

G, D = "docs/guides", "tests/docs"
SHOWN = f"{D}/test_shown.py"
RUN: Final = {
    ("README.md", "python"): SHOWN,
    ("README.md", "sh"): f"{D}/test_quickstart.py",
    ("README.md", "text"): f"{D}/test_quickstart.py",
    ("docs/index.md", "python"): SHOWN,
    ("docs/moving/from-celery.md", "python"): f"{D}/test_moving.py",
    ("docs/moving/from-celerys-canvas.md", "python"): "tests/workflows/runs/test_canvas.py",
    ("docs/moving/from-celery-beat.md", "python"): f"{D}/test_moving.py",
    ("docs/moving/from-django-tasks.md", "python"): f"{D}/test_moving.py",
    ("docs/moving/from-faststream.md", "python"): f"{D}/test_moving.py",
    ("docs/moving/from-nats.md", "python"): f"{D}/test_moving.py",
    ("docs/moving/from-nsq.md", "python"): f"{D}/test_moving.py",
    ("docs/quickstart.md", "python"): f"{D}/test_quickstart.py",
    ("docs/quickstart.md", "sh"): f"{D}/test_quickstart.py",
    ("docs/quickstart.md", "text"): f"{D}/test_quickstart.py",
    ("docs/reference/events.md", "python"): SHOWN,
    ("docs/reference/lake.md", "sql"): "tests/lake/test_rollup_walk.py",
    (f"{G}/api-access.md", "python"): SHOWN,
    (f"{G}/api-access.md", "http"): SHOWN,
    (f"{G}/batches.md", "python"): "tests/workflows/test_batch_guide.py",
    (f"{G}/broker-protocol.md", "sh"): "tests/api/test_broker_guide.py",
    (f"{G}/broker-protocol.md", "json"): "tests/api/test_broker_guide.py",
    (f"{G}/broker-protocol.md", "http"): "tests/api/test_broker_guide.py",
    (f"{G}/bulk-publish.md", "python"): "tests/lake/test_stream_guide.py",
    (f"{G}/capacity.md", "python"): f"{D}/test_capacity_guide.py",
    (f"{G}/capacity.md", "sh"): f"{D}/test_capacity_guide.py",
    (f"{G}/capacity.md", "text"): f"{D}/test_capacity_guide.py",
    (f"{G}/commands.md", "sh"): f"{D}/test_commands_guide.py",
    (f"{G}/commands.md", "text"): f"{D}/test_commands_guide.py",
    (f"{G}/dashboard.md", "python"): SHOWN,
    (f"{G}/dashboard.md", "http"): SHOWN,
    (f"{G}/databases.md", "python"): "tests/databases/test_guide.py",
    (f"{G}/databases.md", "sql"): "tests/databases/test_guide.py",
    (f"{G}/diagnosing.md", "sh"): f"{D}/test_commands.py",
    (f"{G}/handlers.md", "python"): f"{D}/test_guides.py",
    (f"{G}/job-posts.md", "sh"): "tests/api/test_broker_guide.py",
    (f"{G}/clusters.md", "python"): "tests/lake/connect_client.py",
    (f"{G}/keys-and-limits.md", "python"): f"{D}/test_keys_guide.py",
    (f"{G}/lake.md", "python"): "tests/lake/test_rollup_walk.py",
    (f"{G}/lake.md", "sh"): "tests/lake/test_rollup_walk.py",
    (f"{G}/lake.md", "sql"): "tests/lake/test_rollup_walk.py",
    (f"{G}/limits-and-fairness.md", "python"): f"{D}/test_limits_guide.py",
    (f"{G}/sharing-by-key.md", "python"): f"{D}/test_limits_guide.py",
    (f"{G}/separate-database.md", "python"): "tests/databases/test_guide.py",
    (f"{G}/metrics.md", "python"): "tests/metrics/test_guide.py",
    (f"{G}/metrics.md", "sh"): "tests/metrics/test_rules.py",
    (f"{G}/metrics.md", "yaml"): "tests/metrics/test_guide.py",
    (f"{G}/periodic-jobs.md", "python"): "tests/schedules/test_guide.py",
    (f"{G}/publishing.md", "python"): f"{D}/test_guides.py",
    (f"{G}/pulling-over-http.md", "sh"): "tests/api/leases/test_guide.py",
    (f"{G}/pulling-over-http.md", "json"): "tests/api/leases/test_guide.py",
    (f"{G}/push.md", "python"): "tests/webhooks/test_guide.py",
    (f"{G}/serving-the-api.md", "python"): SHOWN,
    (f"{G}/streams.md", "python"): "tests/lake/test_stream_guide.py",
    (f"{G}/testing.md", "python"): "tests/testing/test_guide.py",
    (f"{G}/traces.md", "python"): "tests/metrics/test_guide.py",
    (f"{G}/traces.md", "text"): "tests/metrics/test_guide.py",
    (f"{G}/workers.md", "python"): SHOWN,
    (f"{G}/workflows.md", "python"): "tests/workflows/runs/test_guide.py",
    (f"{G}/workers.md", "ini"): f"{D}/test_commands.py",
    (f"{G}/python-client.md", "python"): "tests/client/test_guide.py",
    (f"{G}/python-client.md", "sh"): "tests/client/test_guide.py",
    (f"{G}/workers-without-django.md", "sh"): "tests/client/test_guide.py",
}


def kinds_of_blocks() -> set[tuple[str, str]]:
    """Return pairs of a page and a kind of code block that the page has."""
    names = [str(page.relative_to(BASE_DIR)) for page in pages()]
    return {(name, block.kind) for name in names for block in blocks(name)}
