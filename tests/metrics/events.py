"""One of every event that is counted."""

from typing import Final

from pulljobs.engine import telemetry as told
from pulljobs.states import Event, State

PLACE: Final = ("orders", "billing")
EVERY: Final = (
    told.JobsPublished("orders", 3, 6),
    told.MessageHeldBack("orders", "no"),
    told.JobsClaimed(*PLACE, 3, [0.1, 0.2, 7.0]),
    told.HandlersRan(*PLACE, [0.003, 0.003, 40.0]),
    told.JobsFinished(
        {(Event.DELIVER, State.DELIVERED): 2, (Event.RETRY, State.QUEUED): 1}, *PLACE
    ),
    told.JobsFinished({(Event.RELEASE, State.QUEUED): 1}, *PLACE),
    told.JobsExpired(*PLACE, {State.QUEUED: 1, State.DEAD: 2}),
    told.LeasesLost(2, *PLACE),
    told.JobRefused(1, *PLACE, "no"),
    told.JobFailed(1, *PLACE, "ValueError"),
    told.JobTimedOut(1, *PLACE, 3.0),
    told.HandlerSilent(1, *PLACE),
    told.GivingUpFailed(1, *PLACE, "ValueError"),
    told.PushAnswered(*PLACE, "2xx"),
    told.CircuitChanged(*PLACE, "open", 1, 2.0),
    told.LoopFailed("fetcher", "OperationalError", 1.0),
    told.LeftBehind((1, 2)),
)
