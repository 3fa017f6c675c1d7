-- Read the records of a schedule's slots between two times, and whether the messages of fired slots exist.
-- Event: none; of `pulljobs verify`.
-- Parameters: schedule_id bigint, begin timestamptz (exclusive), until timestamptz (exclusive).
-- Returns: slot_at, reason, lacks_message, in the order of the slots.
-- Locks: none. Index: slot primary key, message primary key.
SELECT
    slot_at,
    reason,
    slot.message_id IS NOT NULL
    AND NOT EXISTS (
        SELECT
        FROM pulljobs_message AS message
        WHERE message.id = slot.message_id
    ) AS lacks_message
FROM pulljobs_slot AS slot
WHERE schedule_id = %(schedule_id)s::bigint
    AND slot_at > %(begin)s::timestamptz
    AND slot_at < %(until)s::timestamptz
ORDER BY slot_at
