-- Find the channel, the consumer and the producer of a bulk publish.
-- Event: none.
-- Parameters: channel text, consumer text, producer text (the last two NULL where not given).
-- Returns: one row: channel_id, consumer_id, producer_id; NULL: no row has that name.
-- Locks: none. Index: the names.
SELECT
    channel.id AS channel_id,
    consumer.id AS consumer_id,
    producer.id AS producer_id
FROM (SELECT) AS one
LEFT JOIN pulljobs_channel AS channel ON channel.name = %(channel)s::text
LEFT JOIN pulljobs_consumer AS consumer
    ON consumer.channel_id = channel.id AND consumer.name = %(consumer)s::text AND consumer.deleted_at IS NULL
LEFT JOIN pulljobs_producer AS producer ON producer.name = %(producer)s::text
