-- Count runs by the signal that they wait for.
-- Event: none.
-- Parameters: most int (runs that are read; beyond that the counts are lower bounds).
-- Returns: name, runs.
-- Locks: none. Index: run pulljobs_run_waiting, job primary key.
SELECT waiting_for AS name, count(*) AS runs
FROM (
    SELECT run.waiting_for
    FROM pulljobs_run AS run
    JOIN pulljobs_job AS job ON job.id = run.id
    WHERE run.waiting_for IS NOT NULL AND job.state = 'QUEUED'
    LIMIT %(most)s::int
) AS waiting
GROUP BY waiting_for
ORDER BY runs DESC, name
LIMIT 100
