-- Erase the contents of messages and of the settlements and attempts of their jobs, and delete the progress of these. The rows stay, with their ids and times. The scheduled messages from which they were published are deleted.
-- Events: none.
-- Parameters: message_ids bigint[], none of which a job needs; job_ids bigint[], all of their jobs;
--   scheduled text[], their channels and client message ids in the lake, with a space between.
-- Returns: messages, settlements bigint, the numbers of rows.
-- Locks: the rows. Index: primary key of each partition of messages; archived message_id; attempt job_id; progress primary key; none of publications and scheduled messages.
WITH erased_messages AS (
    UPDATE pulljobs_message
    SET payload = '', key = NULL, client_message_id = NULL, headers = '{}'
    WHERE id = ANY(%(message_ids)s::bigint[])
        AND id >= (SELECT min(id) FROM unnest(%(message_ids)s::bigint[]) AS id)
        AND id <= (SELECT max(id) FROM unnest(%(message_ids)s::bigint[]) AS id)
    RETURNING 1
),
erased_settlements AS (
    UPDATE pulljobs_archived_job
    SET error = NULL, result = NULL
    WHERE message_id = ANY(%(message_ids)s::bigint[])
        AND (error IS NOT NULL OR result IS NOT NULL)
    RETURNING 1
),
erased_attempts AS (
    UPDATE pulljobs_attempt
    SET error = NULL
    WHERE job_id = ANY(%(job_ids)s::bigint[]) AND error IS NOT NULL
),
erased_progress AS (
    DELETE FROM pulljobs_progress
    WHERE job_id = ANY(%(job_ids)s::bigint[])
),
forgotten AS (
    DELETE FROM pulljobs_publication
    WHERE message_id = ANY(%(message_ids)s::bigint[])
),
deleted AS (
    DELETE FROM pulljobs_scheduled_message
    WHERE dispatched_at IS NOT NULL
        AND (
            concat(channel_id, ' ', client_message_id) = ANY(%(scheduled)s::text[])
            OR (channel_id, client_message_id) IN (
                SELECT channel_id, client_message_id
                FROM pulljobs_message
                WHERE id = ANY(%(message_ids)s::bigint[])
            )
        )
)
SELECT
    (SELECT count(*) FROM erased_messages) AS messages,
    (SELECT count(*) FROM erased_settlements) AS settlements
