"""JSON bodies of the routes of runs."""

from typing import Annotated, TypedDict

from pulljobs.api.bodies import Help, Time


class FoundRunBody(TypedDict):
    ID: str
    Consumer: str
    State: str
    Workflow: Annotated[str | None, Help("Null: not claimed yet, or a job that is no run.")]


class FoundRunsBody(TypedDict):
    Result: list[FoundRunBody]


class StepBody(TypedDict):
    Name: str
    Number: Annotated[int, Help("1 for the first step of that name.")]
    Kind: Annotated[str, Help("step, atomic, sleep, wait, start or gather.")]
    StartedAt: Time
    EndedAt: Annotated[Time | None, Help("Null: the run sleeps or waits, or was killed in it.")]
    DueAt: Time | None
    Failure: Annotated[str, Help("Failure that the workflow caught, or empty.")]
    Children: Annotated[list[str], Help("Ids of child jobs.")]


class RunBody(TypedDict):
    ID: str
    Workflow: str
    Version: int
    State: str
    WaitsFor: Annotated[str, Help("Empty unless the run is suspended.")]
    AvailableAt: Annotated[Time | None, Help("Null: not before an event, such as a signal.")]
    Error: str | None
    Progress: Annotated[str | None, Help("Progress that the run reported last, in words.")]
    Steps: list[StepBody]
    Result: Annotated[
        str | None, Help("JSON. Only for users who may view messages, when the run is DELIVERED.")
    ]


class SignalBody(TypedDict):
    Sent: Annotated[bool, Help("False: a signal with this dedupe id was sent before.")]
