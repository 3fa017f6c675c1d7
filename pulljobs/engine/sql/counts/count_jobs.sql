-- Count the jobs of consumers by what they wait for, in one snapshot.
-- Event: none.
-- Parameters: consumer_ids bigint[], cap int: no count of a state exceeds it.
-- Returns a row for each consumer: now; consumer_id; ready, delayed, blocked (behind their keys), in_flight and dead (int8);
--   blocked_is_least boolean (there may be more blocked jobs: not all candidates were read); redelivered (jobs that are not DEAD, claimed more
--   than once) and lowest_live bigint, both among the counted jobs; oldest_ready_at; oldest_queued_at and newest_queued_at (of jobs that
--   are not blocked), oldest_claimed_at and newest_claimed_at (NULL where there is no such job).
-- Locks: none. Index: see fragments/counted_jobs.sql.
WITH RECURSIVE ${counted_jobs}
SELECT clock.now, counted.*
FROM clock, counted
