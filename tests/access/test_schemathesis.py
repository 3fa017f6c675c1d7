"""Every answer is one that the OpenAPI document describes, and never a 500.

PULLJOBS_TEST_EXAMPLES says how many requests an operation gets.
"""

import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import use_after_free
from schemathesis.specs.openapi.schemas import OpenApiSchema

from pulljobs.api import DOCUMENT
from tests.access.world import EXCLUDED, World, in_this_process

pytestmark = [
    pytest.mark.django_db,
    # It was no strategy, but the thread of the waiting pulls, that rolled its dice meanwhile.
    pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies"),
]

EXAMPLES = int(os.environ.get("PULLJOBS_TEST_EXAMPLES", "10"))
STEPS = 6
FUZZED = settings(
    max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
OPERATIONS = [
    operation["operationId"]
    for item in json.loads(DOCUMENT.read_text("utf-8"))["paths"].values()
    for operation in item.values()
]


@pytest.fixture(scope="module")
def api() -> OpenApiSchema:
    return in_this_process(DOCUMENT)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_answers_as_documented(
    operation: str, api: OpenApiSchema, world: World
) -> None:
    """Half of the requests follow the document and half violate it."""
    described = api.find_operation_by_id(operation)

    @FUZZED
    @given(st.sampled_from(GenerationMode).flatmap(described.as_strategy), st.integers(0, 19))
    def answers_as_described(case: Case[Any], named: int) -> None:
        world.answer(case, named)

    answers_as_described()


def test_what_one_operation_answers_another_takes(api: OpenApiSchema, world: World) -> None:
    """Chains of requests by the document's links, such as pull and ack, get documented answers."""

    class Walk(api.as_state_machine()):  # type: ignore[misc]  # made of the document
        def get_call_kwargs(self, case: Case[Any]) -> dict[str, Any]:
            return {"headers": world.headers}

        def validate_response(self, response: Any, case: Case[Any], **options: Any) -> None:
            case.validate_response(response, excluded_checks=[*EXCLUDED, use_after_free])

    run_state_machine_as_test(Walk, settings=settings(FUZZED, stateful_step_count=STEPS))
