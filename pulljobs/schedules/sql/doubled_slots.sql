-- Find slots of schedules with two messages or more, among the messages of a channel that were published since an id.
-- Event: none; of verify.
-- Parameters: channel text, first bigint.
-- Returns: schedule, slot (texts) of each.
-- Locks: none. Index: message channel (channel, id), from the first id on.
SELECT
    message.headers ->> 'Pulljobs-Schedule' AS schedule,
    message.headers ->> 'Pulljobs-Slot' AS slot
FROM pulljobs_channel AS channel
JOIN pulljobs_message AS message ON message.channel_id = channel.id
WHERE channel.name = %(channel)s::text
    AND message.id >= %(first)s::bigint
    AND message.headers ->> 'Pulljobs-Schedule' IS NOT NULL
    AND message.headers ->> 'Pulljobs-Slot' IS NOT NULL
GROUP BY 1, 2
HAVING count(*) > 1
