-- Deliver jobs of one claim without results; this is the fast path of finish.sql. Members of batches stay as they are.
-- Event: deliver.
-- Parameters: lease_token uuid, job_ids bigint[], a job once, in ascending order; of each of them run_begins, run_seconds float8[],
--   begin of its run (empty or NULL: not known) on a clock of seconds that is at run_clock float8 now, and its duration.
-- Returns one row: delivered bigint[] (NULL: all of them; what is missing was not held under that lease_token, and nothing was
--   written for it); consumer_id if others of its jobs may be claimed now that could not before (else NULL), and then
--   is_grouped boolean (those of other consumers, too), keyed_ids, freed_keys (of one length): which of the jobs had a key (NULL: none),
--   and turn_keys, each once, in which they held slots (NULL: none).
-- Locks: the jobs, in order of id. Index: primary key. The lease is deleted when its last job ends, unless another transaction has it locked.
WITH lease AS MATERIALIZED (
    SELECT
        claimed_at, node_id, via, leased_until,
        max(renewals) OVER () AS renewals,
        count(*) OVER () AS parts,
        cardinality(job_ids) AS jobs
    FROM pulljobs_lease
    WHERE lease_token = %(lease_token)s::uuid
    LIMIT 1
),
delivered AS (
    DELETE FROM pulljobs_job
    WHERE id = ANY(%(job_ids)s::bigint[]) AND state = 'INFLIGHT' AND lease_token = %(lease_token)s::uuid
        AND batch_id IS NULL  -- not in deliver_members, deliver_member
    RETURNING
        batch_id,  -- only in deliver_members, deliver_member
        id, message_id, consumer_id, retry_count, deliveries, key, turn_key,
        -- The place of the job among the sorted ids, by a binary search.
        width_bucket(id, %(job_ids)s::bigint[]) AS number
),
archived AS (
    INSERT INTO pulljobs_archived_job (
        id, job_id, message_id, consumer_id, created_at, claimed_at, started_at, settled_at, run_seconds,
        settled_xid, retry_count, deliveries, node_id, lease_token, state
    )
    -- Scalar subqueries are evaluated once, when the first job is deleted. A join would evaluate them for every job.
    SELECT
        -- As the column's default has it, but in floating point: `extract` would give a numeric.
        (SELECT ((date_part('epoch', clock_timestamp()) * 1000)::bigint - ${epoch_milliseconds}) << 22)
            | nextval('pulljobs_id'),
        id,
        message_id,
        consumer_id,
        to_timestamp((id >> 22)::float8 / 1000 + ${epoch_seconds}),
        (SELECT claimed_at FROM lease),
        to_timestamp((SELECT date_part('epoch', clock_timestamp()) - %(run_clock)s::float8) + (%(run_begins)s::float8[])[number]),
        (SELECT clock_timestamp()),
        (%(run_seconds)s::float8[])[number],
        -- Once: the column's default would be computed for every job.
        (SELECT pg_current_xact_id()::text::bigint),
        retry_count,
        deliveries,
        (SELECT node_id FROM lease),
        %(lease_token)s::uuid,
        'DELIVERED'
    FROM delivered
),
attempted AS (
    -- Only for renewed claims: the archive row has everything about the others.
    INSERT INTO pulljobs_attempt (
        job_id, lease_token, node_id, via, claimed_at, started_at, ended_at, run_seconds, leased_until, renewals, event
    )
    SELECT
        delivered.id, %(lease_token)s::uuid, lease.node_id, lease.via, lease.claimed_at,
        to_timestamp((SELECT date_part('epoch', clock_timestamp()) - %(run_clock)s::float8) + (%(run_begins)s::float8[])[number]),
        clock_timestamp(), (%(run_seconds)s::float8[])[number],
        coalesce(part.leased_until, lease.leased_until), coalesce(part.renewals, lease.renewals), 'deliver'
    FROM lease
    JOIN delivered ON lease.renewals > 0
    LEFT JOIN LATERAL (
        SELECT leased_until, renewals
        FROM pulljobs_lease
        WHERE lease.parts > 1 AND lease_token = %(lease_token)s::uuid AND delivered.id = ANY(job_ids)
        LIMIT 1
    ) AS part ON true
    WHERE coalesce(part.renewals, lease.renewals) > 0
),
summary AS MATERIALIZED (
    -- The jobs of a claim have one consumer.
    SELECT count(*) AS jobs, (SELECT consumer_id FROM delivered LIMIT 1) AS consumer_id
    FROM delivered
),
ended AS (
    -- ANY of an array, which is always looked up by the primary key: IN may read the whole of the index.
    DELETE FROM pulljobs_lease
    WHERE id = ANY(ARRAY(
        SELECT id
        FROM pulljobs_lease AS held
        WHERE lease_token = %(lease_token)s::uuid
            AND (SELECT jobs FROM summary) > 0
            AND (
                -- Mostly all jobs of the claim end at once. To look up each of them would take a tenth of the time.
                (SELECT lease.jobs = summary.jobs AND parts = 1 FROM lease, summary)
                OR NOT (
                    ${holds_others}
                )
            )
        FOR UPDATE SKIP LOCKED
    ))
),
summed AS (  -- only in deliver_members, deliver_member
    INSERT INTO pulljobs_batch_sum (batch_id, delivered)  -- only in deliver_members, deliver_member
    SELECT batch_id, count(*)  -- only in deliver_members
    SELECT batch_id, 1  -- only in deliver_member
    FROM delivered  -- only in deliver_members, deliver_member
    WHERE batch_id IS NOT NULL  -- only in deliver_members, deliver_member
    GROUP BY batch_id  -- only in deliver_members
    RETURNING batch_id  -- only in deliver_members, deliver_member
),  -- only in deliver_members, deliver_member
guarded AS MATERIALIZED (
    SELECT id, limit_group_id IS NOT NULL AS is_grouped, max_in_flight_per_key IS NOT NULL AS has_slots
    FROM pulljobs_consumer
    WHERE (exclusive_keys OR max_in_flight IS NOT NULL OR limit_group_id IS NOT NULL OR max_in_flight_per_key IS NOT NULL)
        AND id = (SELECT consumer_id FROM summary)
)
SELECT
    CASE
        WHEN summary.jobs < cardinality(%(job_ids)s::bigint[]) THEN ARRAY(SELECT id FROM delivered)
    END AS delivered,
    guarded.id AS consumer_id,
    guarded.is_grouped,
    CASE
        WHEN guarded.id IS NOT NULL THEN (SELECT array_agg(id) FROM delivered WHERE key IS NOT NULL)
    END AS keyed_ids,
    CASE
        WHEN guarded.id IS NOT NULL THEN (SELECT array_agg(key) FROM delivered WHERE key IS NOT NULL)
    END AS freed_keys,
    CASE
        WHEN guarded.has_slots THEN (SELECT array_agg(DISTINCT turn_key) FROM delivered WHERE turn_key IS NOT NULL)
    END AS turn_keys
    , ARRAY(SELECT batch_id FROM summed) AS batch_ids  -- only in deliver_members, deliver_member
FROM summary
LEFT JOIN guarded ON true
