-- Find the consumer whose jobs a stream claims.
-- Event: none.
-- Parameters: channel text, consumer text.
-- Returns: consumer_id, lease_duration interval, type text; no row: no consumer has that name.
-- Locks: none. Index: the names.
SELECT consumer.id AS consumer_id, consumer.lease_duration, consumer.type
FROM pulljobs_channel AS channel
JOIN pulljobs_consumer AS consumer ON consumer.channel_id = channel.id
WHERE channel.name = %(channel)s::text
    AND consumer.name = %(consumer)s::text
    AND consumer.deleted_at IS NULL
