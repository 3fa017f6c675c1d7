-- Find slots of a schedule with two messages or more, among the messages that were published since an id.
-- Event: none; of verify.
-- Parameters: schedule text, channel text, first bigint, begin text, until text (slots, both exclusive).
-- Returns: slot (text) of each.
-- Locks: none. Index: message channel (channel, id), from the first id on.
SELECT message.headers ->> 'Pulljobs-Slot' AS slot
FROM pulljobs_channel AS channel
JOIN pulljobs_message AS message ON message.channel_id = channel.id
WHERE channel.name = %(channel)s::text
    AND message.id >= %(first)s::bigint
    AND message.headers ->> 'Pulljobs-Schedule' = %(schedule)s::text
    -- As text, for any publisher may send such headers.
    AND message.headers ->> 'Pulljobs-Slot' > %(begin)s::text COLLATE "C"
    AND message.headers ->> 'Pulljobs-Slot' < %(until)s::text COLLATE "C"
GROUP BY 1
HAVING count(*) > 1
