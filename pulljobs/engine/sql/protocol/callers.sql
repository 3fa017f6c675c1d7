-- Find channels and their consumers by the names that callers send.
-- Event: none.
-- Parameters: channels text[], consumers text[] (of one length).
-- Returns for each pair whose channel exists: channel, consumer (the names), channel_id, channel_digest, then of the consumer id,
--   token_digest, type, lease_duration, protocol_lease_duration, max_waiting (NULL: the channel has no such consumer, or it was
--   deleted).
-- Locks: none. Index: unique names.
SELECT
    asked.channel,
    asked.consumer,
    channel.id AS channel_id,
    channel.token_digest AS channel_digest,
    consumer.id,
    consumer.token_digest,
    consumer.type,
    consumer.lease_duration,
    consumer.protocol_lease_duration,
    consumer.max_waiting
FROM unnest(%(channels)s::text[], %(consumers)s::text[]) AS asked (channel, consumer)
-- One by one: a join might scan the tables.
CROSS JOIN LATERAL (
    SELECT id, token_digest
    FROM pulljobs_channel
    WHERE name = asked.channel
    LIMIT 1
) AS channel
LEFT JOIN LATERAL (
    SELECT id, token_digest, type, lease_duration, protocol_lease_duration, max_waiting
    FROM pulljobs_consumer
    WHERE channel_id = channel.id AND name = asked.consumer AND deleted_at IS NULL
    LIMIT 1
) AS consumer ON true
