-- List the workflows and versions of the newest and of the oldest runs.
-- Event: none.
-- Parameters: most int (runs that are read from each end).
-- Returns: workflow, version.
-- Locks: none. Index: run primary key.
(
    SELECT workflow, version
    FROM (SELECT workflow, version FROM pulljobs_run ORDER BY id DESC LIMIT %(most)s::int) AS newest
)
UNION
(
    SELECT workflow, version
    FROM (SELECT workflow, version FROM pulljobs_run ORDER BY id LIMIT %(most)s::int) AS oldest
)
ORDER BY workflow, version
