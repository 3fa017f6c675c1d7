-- Find a channel and its consumer by their names: who a caller says it is.
-- Event: none.
-- Parameters: channel text, consumer text.
-- Returns: channel_id, channel_digest, then of the consumer id, token_digest, type, lease_duration, protocol_lease_duration,
--   max_waiting (NULL: the channel has no such consumer, or it was deleted); no row: there is no such channel.
-- Locks: none. Index: unique names.
SELECT
    channel.id AS channel_id,
    channel.token_digest AS channel_digest,
    consumer.id,
    consumer.token_digest,
    consumer.type,
    consumer.lease_duration,
    consumer.protocol_lease_duration,
    consumer.max_waiting
FROM pulljobs_channel AS channel
LEFT JOIN pulljobs_consumer AS consumer
    ON consumer.channel_id = channel.id AND consumer.name = %(consumer)s::text AND consumer.deleted_at IS NULL
WHERE channel.name = %(channel)s::text
