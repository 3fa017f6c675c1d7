-- Add up the sums of a batch, delete them, and leave a sum of zeros if the batch is to be decided.
-- Event: none; in a transaction of its own, or in that of the decision, which has the batch locked.
-- Parameters: batch_id bigint, is_decision boolean (leave no zeros: the caller decides now).
-- Returns one row: is_free (false: another transaction has it locked, and nothing was merged; true without such a batch), is_due (the batch completes, or another round begins).
-- Locks: the batch, FOR NO KEY UPDATE SKIP LOCKED; the sums. Index: primary keys.
WITH batch AS MATERIALIZED (
    SELECT id
    FROM pulljobs_batch
    WHERE id = %(batch_id)s::bigint
    FOR NO KEY UPDATE SKIP LOCKED
),
merged AS (
    DELETE FROM pulljobs_batch_sum
    WHERE batch_id = (SELECT id FROM batch)
    RETURNING members, delivered, dead, redriven
),
total AS MATERIALIZED (
    SELECT
        count(*) AS sums,
        sum(members) AS members,
        sum(delivered) AS delivered,
        sum(dead) AS dead,
        sum(redriven) AS redriven
    FROM merged
),
counted AS (
    UPDATE pulljobs_batch AS batch
    SET
        members = batch.members + total.members,
        delivered = batch.delivered + total.delivered,
        dead = batch.dead + total.dead,
        redriven = batch.redriven + total.redriven
    FROM total
    WHERE batch.id = %(batch_id)s::bigint AND total.sums > 0
    RETURNING
        batch.id,
        CASE
            WHEN batch.completed_at IS NOT NULL THEN batch.redriven > batch.redriven_before
            ELSE batch.closed_at IS NOT NULL AND batch.members = batch.delivered + batch.dead
        END AS is_due
),
noted AS (
    INSERT INTO pulljobs_batch_sum (batch_id)
    SELECT id
    FROM counted
    WHERE is_due AND NOT %(is_decision)s::boolean
)
SELECT
    EXISTS (SELECT FROM batch) OR NOT EXISTS (SELECT FROM pulljobs_batch WHERE id = %(batch_id)s::bigint) AS is_free,
    coalesce((SELECT is_due FROM counted), false) AS is_due
