-- Make runs due that workers have left to others, of versions that the calling worker accepts.
-- Event: none.
-- Parameters: channels, consumers text[], oldest, newest int[], all of one length: what the worker accepts; wanted int (runs of each consumer).
-- Returns: run_id, consumer_id of each run that no longer waits for a worker.
-- Locks: the jobs, SKIP LOCKED, then the runs, which only holders of their jobs change. Index: run pulljobs_run_left, job and run primary key.
WITH transaction AS MATERIALIZED (
    SELECT pg_current_xact_id() AS xid
    WHERE (
            SELECT id
            FROM pulljobs_run
            WHERE waiting_consumer IS NOT NULL
            ORDER BY waiting_consumer, version, id  -- in the order of the index, which is empty mostly
            LIMIT 1
        ) IS NOT NULL
),
${moment_after_id},
found AS MATERIALIZED (
    SELECT run.id, consumer.id AS consumer_id
    FROM moment
    CROSS JOIN unnest(%(channels)s::text[], %(consumers)s::text[], %(oldest)s::int[], %(newest)s::int[])
        AS accepted (channel, consumer, oldest, newest)
    JOIN pulljobs_channel AS channel ON channel.name = accepted.channel
    JOIN pulljobs_consumer AS consumer ON consumer.channel_id = channel.id AND consumer.name = accepted.consumer
    CROSS JOIN LATERAL (
        SELECT id
        FROM pulljobs_run
        WHERE waiting_consumer = consumer.id AND version BETWEEN accepted.oldest AND accepted.newest
        ORDER BY version, id
        LIMIT %(wanted)s::int
    ) AS run
),
locked AS MATERIALIZED (
    SELECT id
    FROM pulljobs_job
    WHERE id = ANY(ARRAY(SELECT id FROM found))
    ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED
),
due AS (
    UPDATE pulljobs_job AS job
    SET available_at = moment.now
    FROM moment
    -- A run that an operator or a signal made due may have a retry or a sleep before it: that is years shorter.
    WHERE job.id = ANY(ARRAY(SELECT id FROM locked))
        AND job.state = 'QUEUED'
        AND job.available_at > moment.now + interval '50 years'
)
UPDATE pulljobs_run AS run
SET waiting_consumer = NULL
FROM found
WHERE run.id = found.id
    AND run.id = ANY(ARRAY(SELECT id FROM found))
    AND (
        run.id IN (SELECT id FROM locked)
        OR (SELECT id FROM pulljobs_job WHERE id = run.id) IS NULL  -- It was deleted.
    )
RETURNING run.id AS run_id, found.consumer_id
