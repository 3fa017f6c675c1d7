-- Find slots of schedules that have two messages or more, among the messages of a channel from an id on.
-- Event: none; of `pulljobs verify`.
-- Parameters: channel text (name), first bigint (lowest id of a message).
-- Returns: schedule (name), slot (ISO 8601), both as the headers of the messages have them.
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
