"""Every JSON body of part B."""

from typing import Any

from rest_framework import serializers
from rest_framework.serializers import Serializer

from pulljobs.api.broker.bodies import Body, Flag, Text, Time, Whole

LIMIT = 100
SECONDS = serializers.FloatField


class Problem(Body):
    type = Text()
    title = Text()
    status = Whole()
    detail = Text()
    code = Text()


class PulledMessage(Body):
    MessageID = Text()
    Payload = Text(allow_blank=True)
    PayloadEncoding = serializers.ChoiceField(["base64"], allow_null=True)
    ContentType = Text()
    Headers = serializers.DictField(child=Text(allow_blank=True))
    PublishedAt = Time()


class PulledJob(Body):
    ID = Text()
    Priority = Whole(min_value=-32_768, max_value=32_767)
    RetryCount = Whole(min_value=0)
    Deliveries = Whole(min_value=1)
    Key = Text(allow_null=True)
    LeaseToken = serializers.UUIDField()
    LeaseExpiresAt = Time()
    LeaseSeconds = SECONDS()
    Message = PulledMessage()


class PullStatus(Body):
    Code = Whole()
    Reason = Text()
    PendingMessages = Whole(min_value=0)
    PendingBytes = Whole(min_value=0)


class Pulled(Body):
    Result = serializers.ListField(child=PulledJob())
    Status = PullStatus()


class Settled(Body):
    ID = Text(allow_blank=True)
    Status = serializers.ChoiceField(["ok", "lease_lost", "not_found", "refused"])


class Acked(Body):
    Results = serializers.ListField(child=Settled())
    Result = serializers.ListField(child=PulledJob(), required=False)
    Status = PullStatus(required=False)


class RenewedJob(Settled):
    LeaseExpiresAt = Time(required=False)
    RemainingSeconds = SECONDS(required=False, min_value=0)


class Renewed(Body):
    Results = serializers.ListField(child=RenewedJob())


class Pull(Serializer[Any]):
    Batch = Whole(min_value=1, max_value=LIMIT, required=False, allow_null=True)
    Expires = SECONDS(min_value=0, max_value=60, required=False, allow_null=True)
    NoWait = Flag(required=False, allow_null=True)
    MaxBytes = Whole(min_value=0, required=False, allow_null=True)
    RequestID = serializers.RegexField(
        r"^[\x20-\x7e]*$", max_length=255, required=False, allow_null=True
    )
    IncrementalTimeout = Whole(min_value=0, max_value=31_536_000, required=False, allow_null=True)


class Outcome(Serializer[Any]):
    ID = Text()
    LeaseToken = Text()
    Outcome = serializers.ChoiceField(["DELIVERED", "DEAD", "RETRY", "RELEASE"])
    DelaySeconds = SECONDS(min_value=0, required=False, allow_null=True)
    Reason = Text(required=False, allow_null=True)
    Error = Text(required=False, allow_null=True)


class Ack(Serializer[Any]):
    Results = serializers.ListField(
        child=Outcome(), max_length=LIMIT, required=False, allow_null=True
    )
    Pull = Pull(required=False, allow_null=True)


class Held(Serializer[Any]):
    ID = Text()
    LeaseToken = Text()


class Renew(Serializer[Any]):
    Leases = serializers.ListField(child=Held(), max_length=LIMIT, required=False, allow_null=True)
    Seconds = SECONDS(min_value=0.001, max_value=31_536_000, required=False, allow_null=True)


class Info(Body):
    """Counts of one moment; above 10,000 they are that, and `Capped` is true."""

    NumQueued = Whole(min_value=0)
    NumDelayed = Whole(min_value=0)
    NumBlocked = Whole(min_value=0)
    NumInFlight = Whole(min_value=0)
    NumRedelivered = Whole(min_value=0)
    NumWaiting = Whole(min_value=0)
    NumDead = Whole(min_value=0)
    OldestQueuedSeconds = SECONDS(allow_null=True)
    Delivered = Whole(min_value=0)
    AckFloor = Text(allow_null=True)
    Capped = Flag()
    Paused = Flag()
    PauseUntil = Time(allow_null=True)
    MaxBatch = Whole()
    MaxExpires = SECONDS()
    MaxInFlight = Whole(allow_null=True)
    MaxWaiting = Whole()
    MaxPayloadBytes = Whole()
    LeaseSeconds = SECONDS()
    MaxLeaseSeconds = SECONDS()
    MaxRetries = Whole()
    MaxDeliveries = Whole()
    RetryDelays = serializers.ListField(child=SECONDS())
    Now = Time()


class Paused(Body):
    PauseUntil = Time(allow_null=True)


class Purged(Body):
    Purged = Whole(min_value=0)


class Accepted(Body):
    Line = Whole(min_value=1)
    MessageID = Text(allow_null=True)
    Status = serializers.ChoiceField(["accepted", "duplicate", "key_full", "invalid", "too_large"])
    Error = Text(required=False)


class AcceptedLines(Body):
    Results = serializers.ListField(child=Accepted())


class FoundConsumer(Body):
    ID = Text()
    Name = Text(allow_blank=True)
    Type = serializers.ChoiceField(["pull", "push"])


class Found(Body):
    Addresses = serializers.ListField(child=Text())
    Consumers = serializers.ListField(child=FoundConsumer())


class Health(Body):
    Status = serializers.ChoiceField(["ok"])


class Pause(Serializer[Any]):
    Until = Time(required=False, allow_null=True, help_text="Null or past: go on.")


class Line(Serializer[Any]):
    """One of Payload and PayloadBase64."""

    Payload = Text(required=False, allow_null=True)
    PayloadBase64 = Text(required=False, allow_null=True)
    MessageID = Text(required=False, allow_null=True, max_length=255)
    Key = Text(required=False, allow_null=True, max_length=255)
    Priority = Whole(required=False, min_value=-32_768, max_value=32_767)
    Headers = serializers.DictField(child=Text(allow_blank=True), required=False, allow_null=True)
    ContentType = Text(required=False, allow_null=True, max_length=255)
