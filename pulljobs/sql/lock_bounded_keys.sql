-- Have publishers of a key take turns, for the consumers of a channel that bound how many jobs of it there may be.
-- Event: none; a statement before full_keys.sql, which then sees what the others published.
-- Parameters: channel text, key text, only_consumer_id bigint (NULL: each).
-- Returns: nothing.
-- Locks: the key's row of each such consumer, in order, made if it is missing; until the publisher's transaction ends. Claims
--   never look at it. Index: channel name, consumer name, bounded key.
INSERT INTO pulljobs_bounded_key (consumer_id, key)
SELECT consumer.id, %(key)s::text
FROM pulljobs_channel AS channel
JOIN pulljobs_consumer AS consumer ON consumer.channel_id = channel.id
WHERE channel.name = %(channel)s::text
    AND consumer.deleted_at IS NULL
    AND consumer.max_queued_per_key > 0
    AND (consumer.id = %(only_consumer_id)s::bigint) IS NOT FALSE
ORDER BY consumer.id
ON CONFLICT (consumer_id, key) DO UPDATE
SET key = excluded.key
