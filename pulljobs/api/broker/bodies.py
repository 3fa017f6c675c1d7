"""Every JSON body and form of part A, by the names that the protocol gives them."""

from typing import Any

from rest_framework import serializers
from rest_framework.serializers import Serializer

from pulljobs.states import State

Text = serializers.CharField
Time = serializers.DateTimeField
Whole = serializers.IntegerField
Flag = serializers.BooleanField

STATES = list(State)
BEYOND = 2**31 - 1
MASKED = "With `***` for login and query, to who may not change the consumer."


class Body(Serializer[Any]):
    """An answer: it has these fields and no others."""


class Links(Body):
    next = Text(required=False)
    previous = Text(required=False)


class Listing(Body):
    """Relative links. A page that is not empty has links to both sides."""

    Result = serializers.ListField(child=Text())
    Pages = Links()
    Links = Text(allow_null=True, help_text="Always null.")


class TokenHolder(Body):
    ID = Text()
    Name = Text()
    Token = Text(required=False, help_text="Only to who may change it.")
    ChangedAt = Time()


class Producer(TokenHolder):
    pass


class Channel(TokenHolder):
    ConsumersURL = Text(allow_blank=True)
    MessagesURL = Text(allow_blank=True)
    BroadcastURL = Text(allow_blank=True)
    MessagesStatusURL = Text(allow_blank=True)


class Consumer(TokenHolder):
    CallbackURL = Text(allow_blank=True, help_text=MASKED)
    DeadLetterQueueURL = Text(allow_blank=True)
    Type = serializers.ChoiceField(["pull", "push"])


class Encoded(Body):
    Payload = Text(allow_blank=True)
    PayloadEncoding = serializers.ChoiceField(
        ["base64"], required=False, help_text="Where the payload is not UTF-8."
    )


class QueuedMessage(Encoded):
    MessageID = Text()
    Headers = serializers.DictField(child=Text(allow_blank=True))
    ContentType = Text()


class QueuedJob(Body):
    ID = Text()
    Priority = Whole(min_value=-32_768, max_value=32_767)
    IncrementalTimeout = Whole(min_value=0)
    Message = QueuedMessage()


class QueuedJobs(Body):
    Result = serializers.ListField(child=QueuedJob())


class StandingJob(Body):
    ListenerEndpoint = Text(allow_blank=True, help_text=MASKED)
    ListenerName = Text()
    Status = serializers.ChoiceField(STATES)
    StatusChangedAt = Time()


class DeadJob(StandingJob):
    MessageURL = Text(allow_blank=True)
    JobRequeueURL = Text(allow_blank=True)


class Job(DeadJob):
    ChannelURL = Text(allow_blank=True)
    ConsumerURL = Text(allow_blank=True)
    ProducerURL = Text(allow_blank=True)


class DeadJobs(Body):
    DeadJobs = serializers.ListField(child=DeadJob())
    Pages = Links()


class Deleted(Body):
    deletedCount = Whole(min_value=0)


class Message(Encoded):
    ID = Text()
    ContentType = Text()
    ProducedBy = Text(allow_blank=True)
    ReceivedAt = Time()
    DispatchedAt = Time()
    Status = serializers.ChoiceField(["DISPATCHED"])
    Jobs = serializers.ListField(child=StandingJob())
    Headers = serializers.DictField(child=Text(allow_blank=True))


class MessagesLink(Body):
    messages = Text()


class MessageCount(Body):
    Count = Whole(min_value=0)
    Capped = Flag(required=False)
    Links = MessagesLink()


class MessageCounts(Body):
    counts = serializers.DictField(child=MessageCount())
    next_scheduled_message_at = Time(required=False)


class ScheduledListing(Body):
    result = serializers.ListField(child=Text())
    pages = Links()


class ScheduledMessage(Body):
    id = Text()
    messageId = Text()
    contentType = Text()
    priority = Whole()
    producedBy = Text(allow_blank=True)
    dispatchSchedule = Time()
    dispatchedAt = Time(allow_null=True)
    status = serializers.ChoiceField(["SCHEDULED", "DISPATCHED"])
    payload = Text(allow_blank=True)
    payloadEncoding = serializers.ChoiceField(["base64"], required=False)
    headers = serializers.DictField(child=Text(allow_blank=True))


class Named(Body):
    ID = Text()
    Name = Text()


class NamedConsumer(Named):
    Channel = Text()
    Type = serializers.ChoiceField(["pull", "push"])


class Seed(Body):
    Channels = serializers.ListField(child=Named())
    Producers = serializers.ListField(child=Named())
    Consumers = serializers.ListField(child=NamedConsumer())
    Capped = Flag(required=False)


class AppStatus(Body):
    SeedData = Seed()
    AppStatus = Whole(min_value=3, max_value=3)


class DeadCount(Body):
    channelId = Text()
    channelName = Text()
    consumerId = Text()
    consumerName = Text()
    deadCount = Whole(min_value=0)
    Capped = Flag(required=False)


class DeadCounts(Body):
    consumers = serializers.ListField(child=DeadCount())


class PartyForm(Serializer[Any]):
    token = serializers.RegexField(
        r"^[\x21-\x7e]*$", max_length=255, required=False, help_text="Absent: a random one."
    )
    name = Text(max_length=255, required=False, help_text="Absent: the id.")


class ConsumerForm(PartyForm):
    callbackUrl = serializers.URLField(max_length=2000, help_text="Of pull consumers, too.")
    type = serializers.ChoiceField(["pull", "push"], required=False, help_text="Absent: push.")


class RequeueForm(Serializer[Any]):
    requeue = Text(help_text="The consumer's token.")


class Transition(Serializer[Any]):
    NextState = serializers.ChoiceField(STATES)
    IncrementalTimeout = Whole(
        min_value=0, max_value=31_536_000, required=False, allow_null=True, help_text="Seconds."
    )
