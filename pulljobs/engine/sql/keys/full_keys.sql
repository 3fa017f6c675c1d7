-- Find the consumers of a channel for which a key is full.
-- Event: none; under the locks of lock_bounded_keys.sql.
-- Parameters: channel text, key text, only_consumer_id bigint (NULL: each).
-- Returns: consumer_id, name, overflow text, surplus int (jobs above the bound, were one more published), queued bigint[] (ids,
--   the oldest first), last_message_id (of the newest job).
-- Locks: none. Index: channel name, consumer name, pulljobs_job_key; of a bounded key there are not many jobs.
SELECT
    consumer.id AS consumer_id,
    consumer.name,
    consumer.key_overflow AS overflow,
    counted.jobs + 1 - consumer.max_queued_per_key AS surplus,
    there.queued,
    there.last_message_id
FROM pulljobs_channel AS channel
JOIN pulljobs_consumer AS consumer ON consumer.channel_id = channel.id
CROSS JOIN LATERAL (
    SELECT
        count(*)::int AS live,
        coalesce(array_agg(id ORDER BY id) FILTER (WHERE state = 'QUEUED'), '{}') AS queued,
        (array_agg(message_id ORDER BY id DESC))[1] AS last_message_id
    FROM pulljobs_job
    WHERE consumer_id = consumer.id AND key = %(key)s::text AND reason IS NULL
) AS there
CROSS JOIN LATERAL (
    SELECT CASE consumer.key_limit_counts WHEN 'live' THEN live ELSE cardinality(queued) END AS jobs
) AS counted
WHERE channel.name = %(channel)s::text
    AND consumer.deleted_at IS NULL
    AND consumer.max_queued_per_key > 0
    AND (consumer.id = %(only_consumer_id)s::bigint) IS NOT FALSE
    AND counted.jobs >= consumer.max_queued_per_key
ORDER BY consumer.id
