-- Find the next runs of a list that match its filters, newest first, among a bounded number of runs.
-- Event: none.
-- Parameters: below bigint (ids below it), scanned int (runs that are read), wanted int, workflow text, version bigint, state text: that of
--   the live job, or ended (each NULL: any).
-- Returns: id.
-- Locks: none. Index: run and job primary key.
SELECT run.id
FROM (
    SELECT id, workflow, version
    FROM pulljobs_run
    WHERE id < %(below)s::bigint
    ORDER BY id DESC
    LIMIT %(scanned)s::int
) AS run
WHERE (%(workflow)s::text IS NULL OR run.workflow = %(workflow)s::text)
    AND (%(version)s::bigint IS NULL OR run.version = %(version)s::bigint)
    AND (
        %(state)s::text IS NULL
        OR coalesce((SELECT state FROM pulljobs_job WHERE id = run.id), 'ended') = %(state)s::text
    )
ORDER BY run.id DESC
LIMIT %(wanted)s::int
