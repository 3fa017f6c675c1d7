-- Settle or give back jobs under their leases, each by its own event. Members of batches stay as they are.
-- Events: deliver, reject, retry, release, suspend; expire from the reaper, which holds the lease row.
-- Parameters, arrays of one length, those after events empty where all are NULL, a job once: job_ids bigint[] in ascending order, lease_tokens uuid[],
--   events text[], reasons text[] (of reject, and of a retry that is one too many),
--   delays interval[] (of retry; NULL: the consumer's strategy; of release and suspend; NULL: none), errors text[], results jsonb[]; started boolean[] (of expire
--   and retry: a job that had in a worker is charged and becomes a suspect; one that is not known to have started is not charged, and
--   becomes a suspect when that happens again; NULL: charged, and nothing more; of release: true with a delay is a snooze, which keeps its key as a retry does),
--   max_retries int[] (of retry: retries in place of the consumer's; NULL: those of the consumer),
--   run_begins, run_seconds float8[] (begin of the run on a clock of seconds that is at run_clock float8 now, and its duration).
-- Returns: job_id, state it went to, consumer_id if others of its jobs may be claimed now that could not before (else NULL),
--   is_grouped boolean (those of other consumers, too), freed_key (NULL: none), turn_key (NULL: its keys have no slots and no rate); what
--   does not come back was not held under that lease_token, and nothing was written for it.
-- Locks: the jobs, those to deliver first, each kind in order of id. Index: primary key. Leases without further jobs are deleted, unless another transaction has them locked.
WITH ${clock_after_id},
offered AS MATERIALIZED (
    SELECT *
    FROM unnest(
        %(job_ids)s::bigint[],
        %(lease_tokens)s::uuid[],
        %(events)s::text[],
        %(reasons)s::text[],
        %(delays)s::interval[],
        %(errors)s::text[],
        %(results)s::jsonb[],
        %(started)s::boolean[],
        %(max_retries)s::int[]
    ) AS row (job_id, lease_token, event, reason, delay, error, result, started, max_retries)
    ORDER BY job_id
),
lease AS MATERIALIZED (
    SELECT DISTINCT ON (lease_token)
        lease_token, claimed_at, node_id, via, leased_until,
        max(renewals) OVER (PARTITION BY lease_token) AS renewals,
        count(*) OVER (PARTITION BY lease_token) AS parts
    FROM pulljobs_lease
    WHERE lease_token = ANY(%(lease_tokens)s::uuid[])
),
result AS MATERIALIZED (
    SELECT jsonb_object_agg(job_id, result) AS by_job
    FROM offered
    WHERE result IS NOT NULL
),
delivered AS (
    -- One scan with all ids, filtered through a hash: IS TRUE keeps it from being a join, which takes longer.
    DELETE FROM pulljobs_job
    WHERE id = ANY(ARRAY(SELECT job_id FROM offered WHERE event = 'deliver'))
        AND state = 'INFLIGHT'
        AND ((id, lease_token) IN (SELECT job_id, lease_token FROM offered WHERE event = 'deliver')) IS TRUE
        AND batch_id IS NULL  -- not in finish_members
    RETURNING
        batch_id,  -- only in finish_members
        id, message_id, consumer_id, retry_count, deliveries, lease_token, key AS freed_key, turn_key,
        'DELIVERED' AS state, NULL AS reason, NULL AS error,
        (SELECT by_job FROM result) -> id::text AS result,
        'deliver' AS event, NULL AS attempt_error
),
failed AS MATERIALIZED (
    SELECT
        offered.*,
        CASE
            WHEN event = 'reject' THEN coalesce(offered.reason, 'rejected')
            WHEN event IN ('release', 'suspend') OR unexplained THEN NULL
            WHEN job.deliveries >= consumer.max_deliveries THEN 'max_deliveries'
            WHEN spared THEN NULL
            WHEN job.retry_count >= coalesce(
                    offered.max_retries,
                    CASE WHEN cardinality(consumer.retry_delays) = 0 THEN 0 ELSE consumer.max_retries END
                )
                OR clock.now + wait > job.first_claimed_at + consumer.max_total_delay
                THEN coalesce(offered.reason, 'retries_exhausted')
        END AS dead,
        clock.now + CASE WHEN spared AND offered.delay IS NULL THEN interval '0' ELSE wait END AS due,
        spared,
        -- The job was lost for the second time, for unknown reasons. Its next run, alone, shows if it is the cause.
        unexplained AND job.deliveries >= least(job.retry_count + 2, consumer.max_deliveries) AS isolated,
        (event = 'retry' OR event = 'release' AND offered.started AND offered.delay > interval '0')
            AND NOT consumer.hold_key_on_retry AS lets_go
    FROM clock
    CROSS JOIN offered
    CROSS JOIN LATERAL (
        SELECT
            event IN ('release', 'suspend') OR started IS FALSE AS spared,
            -- A worker was lost that may have run the job. Spark and clients give back only jobs that they did run.
            event = 'expire' AND started IS FALSE AND EXISTS (
                SELECT
                FROM lease
                WHERE lease.lease_token = offered.lease_token AND via IN ('worker', 'push')
            ) AS unexplained
    ) AS blame
    JOIN pulljobs_job AS job
        ON job.id = offered.job_id AND job.lease_token = offered.lease_token AND job.state = 'INFLIGHT'
        AND job.batch_id IS NULL  -- not in finish_members
        -- Else a plan made while the table is empty may begin with all of it; here and below.
        AND job.id = ANY(ARRAY(SELECT job_id FROM offered WHERE event <> 'deliver'))
    CROSS JOIN LATERAL (
        -- One by one: a join might begin with the consumer and read all of its jobs.
        SELECT *
        FROM pulljobs_consumer
        WHERE id = job.consumer_id
        LIMIT 1
    ) AS consumer
    CROSS JOIN LATERAL (
        -- The (retry count + 1)-th delay of the strategy: see backoff.Delays.before().
        SELECT least(consumer.retry_cap, CASE
            WHEN job.retry_count < cardinality(consumer.retry_delays)
                THEN consumer.retry_delays[job.retry_count + 1]
            ELSE (job.retry_count + 2 - cardinality(consumer.retry_delays))
                * coalesce(consumer.retry_delays[cardinality(consumer.retry_delays)], 0)
        END) AS seconds
    ) AS strategy
    CROSS JOIN LATERAL (
        SELECT
            seconds * (1 - consumer.retry_jitter) AS lowest,
            least(consumer.retry_cap, seconds * (1 + consumer.retry_jitter)) AS highest
    ) AS jitter
    CROSS JOIN LATERAL (
        -- Never in the past: nothing comes back below the low-water marks.
        SELECT greatest(
            coalesce(offered.delay, make_interval(secs => lowest + (highest - lowest) * random())),
            interval '0'
        ) AS wait
    ) AS planned
    WHERE event <> 'deliver'
),
returned AS (
    UPDATE pulljobs_job AS job
    SET
        state = CASE WHEN dead IS NULL THEN 'QUEUED' ELSE 'DEAD' END,
        lease_token = NULL,
        incremental_timeout = NULL,
        reason = dead,
        available_at = CASE WHEN dead IS NULL THEN due END,
        -- A run that suspends has made progress: its next claims have all retries, and a total delay of their own.
        retry_count = CASE
            WHEN event = 'suspend' THEN 0
            WHEN event IN ('retry', 'expire') AND dead IS NULL AND NOT spared THEN job.retry_count + 1
            ELSE job.retry_count
        END,
        -- Not 0: only for the first claim of a job, telemetry counts the wait since the publish.
        deliveries = CASE
            WHEN event = 'suspend' THEN 1
            WHEN event = 'release' OR isolated THEN job.deliveries - 1
            ELSE job.deliveries
        END,
        first_claimed_at = CASE
            WHEN event <> 'suspend' AND (event <> 'release' OR job.deliveries > 1) THEN job.first_claimed_at
        END,
        error = CASE WHEN spared AND dead IS NULL AND event <> 'suspend' THEN job.error ELSE failed.error END,
        -- A run that suspends has ended its execution without a crash, as a job whose handler ends.
        suspect = event <> 'suspend' AND CASE WHEN spared THEN job.suspect OR isolated ELSE started IS TRUE END
    FROM failed
    WHERE job.id = failed.job_id AND job.lease_token = failed.lease_token AND job.state = 'INFLIGHT'
        AND job.id = ANY(ARRAY(SELECT job_id FROM failed))
    RETURNING
        job.batch_id,  -- only in finish_members
        job.id, job.message_id, job.consumer_id, job.retry_count, job.deliveries, failed.lease_token,
        CASE WHEN lets_go OR job.state = 'DEAD' THEN job.key END AS freed_key,
        job.turn_key,
        job.state, job.reason, job.error, failed.result,
        failed.event, failed.error AS attempt_error
),
settled AS MATERIALIZED (
    SELECT
        outcome.*,
        to_timestamp(date_part('epoch', clock_timestamp()) - %(run_clock)s::float8 + (%(run_begins)s::float8[])[number]) AS started_at,
        (%(run_seconds)s::float8[])[number] AS run_seconds
    FROM (
        SELECT * FROM delivered
        UNION ALL
        SELECT * FROM returned
    ) AS outcome
    -- The place of the job among the sorted ids, by a binary search.
    CROSS JOIN LATERAL width_bucket(outcome.id, %(job_ids)s::bigint[]) AS number
),
archived AS (
    INSERT INTO pulljobs_archived_job (
        job_id, message_id, consumer_id, created_at, claimed_at, started_at, settled_at, run_seconds, settled_xid, retry_count, deliveries,
        node_id, lease_token, state, reason, error, result
    )
    SELECT
        settled.id,
        settled.message_id,
        settled.consumer_id,
        to_timestamp((settled.id >> 22)::float8 / 1000 + ${epoch_seconds}),
        lease.claimed_at,
        settled.started_at,
        clock_timestamp(),
        settled.run_seconds,
        (SELECT xid::text::bigint FROM transaction),
        settled.retry_count,
        settled.deliveries,
        lease.node_id,
        settled.lease_token,
        settled.state,
        settled.reason,
        settled.error,
        settled.result
    FROM settled
    LEFT JOIN lease ON lease.lease_token = settled.lease_token
    WHERE settled.state <> 'QUEUED'
),
unarchived AS MATERIALIZED (
    -- What the archive does not record: claims that settled nothing, and renewals. Jobs that end at the first attempt need no row.
    SELECT
        settled.id, settled.state, settled.event, settled.attempt_error, settled.started_at, settled.run_seconds, lease.*
    FROM settled
    JOIN lease ON lease.lease_token = settled.lease_token
    WHERE settled.state = 'QUEUED' OR lease.renewals > 0
),
attempted AS (
    INSERT INTO pulljobs_attempt (
        job_id, lease_token, node_id, via, claimed_at, started_at, ended_at, run_seconds, leased_until, renewals, event, error
    )
    SELECT
        unarchived.id, unarchived.lease_token, unarchived.node_id, unarchived.via, unarchived.claimed_at,
        unarchived.started_at, clock_timestamp(), unarchived.run_seconds,
        coalesce(part.leased_until, unarchived.leased_until), coalesce(part.renewals, unarchived.renewals),
        unarchived.event, unarchived.attempt_error
    FROM unarchived
    LEFT JOIN LATERAL (
        -- Only if renewals split its claim: searching the ids for every job takes quadratic time.
        SELECT leased_until, renewals
        FROM pulljobs_lease
        WHERE unarchived.parts > 1 AND lease_token = unarchived.lease_token AND unarchived.id = ANY(job_ids)
        LIMIT 1
    ) AS part ON true
    WHERE unarchived.state = 'QUEUED' OR coalesce(part.renewals, unarchived.renewals) > 0
),
summed AS (  -- only in finish_members
    INSERT INTO pulljobs_batch_sum (batch_id, delivered, dead)  -- only in finish_members
    SELECT batch_id, count(*) FILTER (WHERE state = 'DELIVERED'), count(*) FILTER (WHERE state = 'DEAD')  -- only in finish_members
    FROM settled  -- only in finish_members
    WHERE batch_id IS NOT NULL AND state <> 'QUEUED'  -- only in finish_members
    GROUP BY batch_id  -- only in finish_members
),  -- only in finish_members
ended AS (
    DELETE FROM pulljobs_lease
    WHERE id = ANY(ARRAY(
        -- For a row that changed meanwhile, PostgreSQL can evaluate a condition on an array again, unlike a join with
        -- the settled jobs. It looks values up in a hash, where arrays compare each with each.
        SELECT id
        FROM pulljobs_lease AS held
        WHERE lease_token = ANY(ARRAY(SELECT lease_token FROM settled))
            AND NOT (
                ${holds_others}
            )
        FOR UPDATE SKIP LOCKED
    ))
),
guarded AS MATERIALIZED (
    SELECT
        consumer.id,
        exclusive_keys OR max_in_flight IS NOT NULL OR limit_group_id IS NOT NULL OR max_in_flight_per_key IS NOT NULL AS has_bounds,
        limit_group_id IS NOT NULL AS is_grouped,
        max_in_flight_per_key IS NOT NULL OR rate_per_key AS by_turn
    FROM (SELECT DISTINCT consumer_id FROM settled) AS known
    CROSS JOIN LATERAL (
        -- One by one: a join might read all consumers, of which thousands may be idle.
        SELECT *
        FROM pulljobs_consumer
        WHERE id = known.consumer_id
        LIMIT 1
    ) AS consumer
)
SELECT
    id AS job_id,
    state,
    CASE WHEN consumer_id IN (SELECT id FROM guarded WHERE has_bounds) THEN consumer_id END AS consumer_id,
    consumer_id IN (SELECT id FROM guarded WHERE is_grouped) AS is_grouped,
    freed_key,
    CASE WHEN consumer_id IN (SELECT id FROM guarded WHERE by_turn) THEN turn_key END AS turn_key
    , batch_id  -- only in finish_members
FROM settled
