"""Sample events, at least one of each class that is counted."""

from typing import Final

from pulljobs.engine import telemetry
from pulljobs.schedules.telemetry import ScheduleRefused, SlotsRecorded
from pulljobs.states import Event, State
from pulljobs.workflows.batches.telemetry import BatchCompleted, BatchReopened, CallbackRefused
from pulljobs.workflows.telemetry import StepEnded

PLACE: Final = ("orders", "billing")
EVERY: Final = (
    telemetry.JobsPublished("orders", 3, 6),
    telemetry.MessageHeldBack("orders", "no"),
    telemetry.JobsClaimed(*PLACE, 3, [0.1, 0.2, 7.0]),
    telemetry.ClaimLimited(*PLACE, "rate_limited", 2.5),
    telemetry.HandlersRan(*PLACE, [0.003, 0.003, 40.0]),
    telemetry.JobsFinished(
        {(Event.DELIVER, State.DELIVERED): 2, (Event.RETRY, State.QUEUED): 1}, *PLACE
    ),
    telemetry.JobsFinished({(Event.RELEASE, State.QUEUED): 1}, *PLACE),
    telemetry.JobsExpired(*PLACE, {State.QUEUED: 1, State.DEAD: 2}),
    telemetry.LeasesLost(2, *PLACE),
    telemetry.JobRefused(1, *PLACE, "no"),
    telemetry.JobFailed(1, *PLACE, "ValueError"),
    telemetry.JobTimedOut(1, *PLACE, 3.0),
    telemetry.HandlerSilent(1, *PLACE),
    telemetry.GivingUpFailed(1, *PLACE, "ValueError"),
    telemetry.PushAnswered(*PLACE, "2xx"),
    telemetry.CircuitChanged(*PLACE, "open", 1, 2.0),
    telemetry.LoopFailed("fetcher", "OperationalError", 1.0),
    telemetry.LeftBehind((1, 2)),
    SlotsRecorded("orders", [0.02, 0.5], {"missed": 3, "overlap": 1}),
    ScheduleRefused("orders", "daily", "no channel"),
    StepEnded(*PLACE, "step", 0.1, is_failed=False),
    BatchCompleted(1, 1, 10, 2),
    BatchReopened(1, 2),
    CallbackRefused(1, "no channel"),
)
