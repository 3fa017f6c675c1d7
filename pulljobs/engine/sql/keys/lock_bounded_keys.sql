-- Have publishers of keys take turns, for the consumers of a channel that bound how many jobs of one there may be.
-- Event: none; a statement before full_keys.sql, which then sees what the others published.
-- Parameters: channel text, keys text[], only_consumer_id bigint (NULL: each).
-- Returns: nothing.
-- Locks: the keys' rows of each such consumer, in order of both (of the key as Python sorts text), made if missing; until the
--   publisher's transaction ends. Claims never look at them. Index: channel name, consumer name, bounded key.
INSERT INTO pulljobs_bounded_key (consumer_id, key)
SELECT DISTINCT consumer.id, key COLLATE "C"
FROM pulljobs_channel AS channel
JOIN pulljobs_consumer AS consumer ON consumer.channel_id = channel.id
CROSS JOIN unnest(%(keys)s::text[]) AS key
WHERE channel.name = %(channel)s::text
    AND consumer.deleted_at IS NULL
    AND consumer.max_queued_per_key > 0
    AND (consumer.id = %(only_consumer_id)s::bigint) IS NOT FALSE
ORDER BY consumer.id, key COLLATE "C"
ON CONFLICT (consumer_id, key) DO UPDATE
SET key = excluded.key
