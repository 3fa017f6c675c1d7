-- Claim jobs by key under one new lease: those of the keys whose turns come first, within a key by priority, then the longest available.
-- Event: claim. In each round a key gives as many jobs as its weight. A claim has as many rounds as it has room for, and a key gives only what
--   its free slots and its tokens allow. Then it goes to the end of the ring, or to the time of its next token. Without a free slot it has no
--   turn until a job of it ends, and without jobs until another becomes claimable.
-- Parameters: consumer_id bigint, wanted int, keys int (to look at), priorities int[] (of the consumer's jobs, the highest first), node_id uuid, via text,
--   lease_duration interval (NULL: the consumer's), max_lease interval, request_id text (NULL: none), guarded boolean (the caller has
--   checked max_in_flight and the rate of the consumer); the low-water marks of the ring (low_water_marks.py), by falling rank: ring_ranks
--   int[], ring_marks timestamptz[]; and the ranges between them, where there may be ranks that the caller does not know: ring_gap_tops,
--   ring_gap_bottoms int[].
-- Returns one row: xid, started_at timestamptz, snapshot text, ranks int[] (every rank there is) and their first turns first_turns
--   timestamptz[] (NULL: none), lease_token, leased_until, the jobs as arrays in the order claimed (job_ids, message_ids, job_priorities,
--   retry_counts, deliveries, suspects); is_emptied boolean (a key has no further job), has_turns boolean (a key may be served at once:
--   one of these again, or another that it did not reach, because it met too many at their limits), is_contended boolean (other transactions have due keys locked), has_full boolean (a key waits for a slot), turn_seconds
--   float8 (until the next turn in the future), pause_seconds float8 (NULL: none), refusal text as claim.sql has it; unguarded: claims of
--   the consumer do not go by key, too.
-- Locks: the rows of keys and the jobs taken, skipping those that other transactions have locked. Index: pulljobs_flow_key_turn, pulljobs_job_turn, primary keys.
--
-- It locks and decides in one statement: a row is used only if the version that was locked is that of this statement's snapshot, which then
-- has all earlier claims of the key, because each writes the row. PostgreSQL evaluates that condition again for a row that has changed.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
${open_consumer},
discovered (turn_rank, bottom) AS (
    SELECT row.turn_rank, gap.bottom
    FROM unnest(%(ring_gap_tops)s::int[], %(ring_gap_bottoms)s::int[]) AS gap (top, bottom)
    CROSS JOIN LATERAL (
        SELECT turn_rank
        FROM pulljobs_flow_key
        WHERE consumer_id = %(consumer_id)s::bigint AND turn_at IS NOT NULL AND turn_rank < gap.top AND turn_rank > gap.bottom
        ORDER BY turn_rank DESC
        LIMIT 1
    ) AS row
    UNION ALL
    SELECT row.turn_rank, discovered.bottom
    FROM discovered
    CROSS JOIN LATERAL (
        SELECT turn_rank
        FROM pulljobs_flow_key
        WHERE consumer_id = %(consumer_id)s::bigint
            AND turn_at IS NOT NULL
            AND turn_rank < discovered.turn_rank AND turn_rank > discovered.bottom
        ORDER BY turn_rank DESC
        LIMIT 1
    ) AS row
),
rank AS MATERIALIZED (
    SELECT turn_rank, mark
    FROM unnest(%(ring_ranks)s::int[], %(ring_marks)s::timestamptz[]) AS known (turn_rank, mark)
    UNION ALL
    SELECT turn_rank, '-infinity'
    FROM discovered
    ORDER BY turn_rank DESC
),
reached AS MATERIALIZED (
    -- Locked or not, and as it is in the snapshot: the mark may go up to there.
    SELECT rank.turn_rank, first.turn_at
    FROM rank
    LEFT JOIN LATERAL (
        SELECT turn_at
        FROM pulljobs_flow_key
        WHERE consumer_id = %(consumer_id)s::bigint AND turn_rank = rank.turn_rank AND turn_at >= rank.mark
        ORDER BY turn_at
        LIMIT 1
    ) AS first ON true
),
turn AS MATERIALIZED (
    SELECT row.*
    FROM consumer
    CROSS JOIN rank
    CROSS JOIN LATERAL (
        SELECT
            ctid AS place, key, turn_rank, turn_at, weight, owed, mark_priority, mark_at, mark_id, holders, filled_at, tokens, throttled_until
        FROM pulljobs_flow_key
        WHERE consumer_id = %(consumer_id)s::bigint
            AND turn_rank = rank.turn_rank
            AND turn_at >= rank.mark
            AND turn_at <= (SELECT now FROM clock)
            AND (
                pg_visible_in_snapshot(writer, (SELECT pg_current_snapshot()))
                -- Locked since this transaction wrote it.
                OR writer = (SELECT pg_current_xact_id_if_assigned())
            )
        ORDER BY turn_at, key
        LIMIT %(keys)s::int
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS row
    LIMIT %(keys)s::int
),
shared AS MATERIALIZED (
    -- What is owed of the present turns, as many further rounds as the claim has room for, and then the first turns of one more.
    SELECT
        ordered.*,
        begun + CASE WHEN rest > 0 THEN rest / weights * weight + extra ELSE 0 END AS share,
        CASE WHEN rest > 0 AND extra > 0 THEN weight - extra ELSE 0 END AS owed_after,
        rest > 0 AND extra < weight AS goes_first
    FROM (
        SELECT
            counted.*,
            least(weight, greatest(0, mod(rest, weights) - weights_before)) AS extra
        FROM (
            SELECT
                turn.*,
                CASE WHEN owed > 0 THEN owed ELSE weight END AS begun,
                row_number() OVER in_order AS number,
                sum(weight) OVER in_order - weight AS weights_before,
                sum(weight) OVER () AS weights,
                %(wanted)s::int - sum(CASE WHEN owed > 0 THEN owed ELSE weight END) OVER () AS rest
            FROM turn
            WINDOW in_order AS (ORDER BY turn_rank DESC, turn_at, key ROWS UNBOUNDED PRECEDING)
        ) AS counted
    ) AS ordered
),
open AS MATERIALIZED (
    SELECT
        turn.*,
        live.ids AS live_ids,
        level.tokens AS level,
        consumer.fair_by_key,
        consumer.burst,
        greatest(0, least(turn.share, consumer.slots - cardinality(live.ids), floor(level.tokens)::int)) AS most
    FROM shared AS turn
    CROSS JOIN consumer
    CROSS JOIN LATERAL (
        -- One by one: a join might scan the table. A settled job holds no slot.
        SELECT ARRAY(
            SELECT holder.id
            ${live_holders}
            WHERE consumer.slots IS NOT NULL
        ) AS ids
    ) AS live
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN consumer.per_second IS NULL THEN NULL
            WHEN turn.tokens IS NULL THEN consumer.burst
            ELSE least(
                consumer.burst,
                turn.tokens + consumer.per_second * greatest(date_part('epoch', (SELECT now FROM clock) - turn.filled_at), 0)
            )
        END AS tokens
    ) AS level
),
allowed AS MATERIALIZED (
    SELECT *
    FROM (
        SELECT
            open.*,
            %(wanted)s::int - coalesce(sum(most) OVER (ORDER BY number ROWS UNBOUNDED PRECEDING EXCLUDE CURRENT ROW), 0) AS room
        FROM open
    ) AS ordered
    WHERE room > 0
),
seen AS MATERIALIZED (
    SELECT
        allowed.key, allowed.turn_rank, allowed.number, allowed.weight, allowed.level, least(coalesce(job.job_cost, 1), allowed.burst) AS cost, job.*
    FROM allowed
    CROSS JOIN LATERAL (
        SELECT waiting.*
        FROM unnest(%(priorities)s::int[]) AS level (priority)
        CROSS JOIN LATERAL (
            SELECT id, message_id, priority, available_at, retry_count, deliveries, suspect, cost AS job_cost
            ${waiting_jobs_of_key}
            ORDER BY available_at, id
            LIMIT least(allowed.most, allowed.room)
            FOR UPDATE SKIP LOCKED
        ) AS waiting
        -- Keys that have no job of their rank any more give way to others.
        WHERE allowed.fair_by_key OR level.priority >= allowed.turn_rank
        LIMIT least(allowed.most, allowed.room)
    ) AS job
),
pick AS MATERIALIZED (
    -- The first jobs of each key for which the key has tokens.
    SELECT *
    FROM (
        SELECT seen.*, sum(cost) OVER of_key AS cost_so_far, (row_number() OVER of_key - 1) / weight AS round
        FROM seen
        WINDOW of_key AS (PARTITION BY key ORDER BY priority DESC, available_at, id)
    ) AS summed
    WHERE (cost_so_far > level) IS NOT TRUE
),
taken AS MATERIALIZED (
    SELECT
        count(*) AS jobs,
        coalesce(array_agg(id), '{}') AS ids,
        array_agg(message_id) AS message_ids,
        array_agg(priority) AS priorities,
        array_agg(retry_count) AS retry_counts,
        array_agg(deliveries + 1) AS deliveries,
        array_agg(suspect) AS suspects
    FROM (
        -- Keys of a rank in turn, within the claim as well: else the first job of a key would start behind all those of another.
        SELECT *
        FROM pick
        ORDER BY turn_rank DESC, round, number, priority DESC, available_at, id
    ) AS ordered
),
${lease_of_taken},
served AS MATERIALIZED (
    SELECT key, count(*)::int AS jobs, array_agg(id) AS ids, sum(cost) AS cost
    FROM pick
    GROUP BY key
),
last AS MATERIALIZED (
    SELECT DISTINCT ON (key) key, priority, available_at, id
    FROM pick
    ORDER BY key, priority, available_at DESC, id DESC
),
result AS MATERIALIZED (
    SELECT
        allowed.*,
        consumer.slots,
        consumer.per_second,
        allowed.level - coalesce(served.cost, 0) AS tokens_left,
        least(coalesce(next.cost, 1), allowed.burst) AS tokens_needed,
        coalesce(served.jobs, 0) AS taken,
        CASE WHEN consumer.slots IS NOT NULL THEN allowed.live_ids || coalesce(served.ids, '{}') ELSE '{}' END AS now_holding,
        CASE WHEN allowed.fair_by_key THEN 0 ELSE next.priority END AS next_rank,
        next.id AS next_id,
        -- A job that was passed, because another transaction has it locked, stays above the mark.
        last.id IS NOT NULL
            AND (next.priority = last.priority AND (next.available_at, next.id) < (last.available_at, last.id)) IS NOT TRUE AS is_marked,
        last.priority AS last_priority,
        last.available_at AS last_at,
        last.id AS last_id
    FROM allowed
    CROSS JOIN consumer
    LEFT JOIN served ON served.key = allowed.key
    LEFT JOIN last ON last.key = allowed.key
    LEFT JOIN LATERAL (
        -- Without this, a key without further jobs would keep a turn, in which a claim finds nothing.
        SELECT waiting.*
        FROM unnest(%(priorities)s::int[]) AS level (priority)
        CROSS JOIN LATERAL (
            SELECT id, priority, available_at, cost
            ${waiting_jobs_of_key}
                AND id NOT IN (SELECT id FROM pick)
            ORDER BY available_at, id
            LIMIT 1
        ) AS waiting
        LIMIT 1
    ) AS next ON true
    WHERE (SELECT lease_token FROM lease) IS NOT NULL OR (SELECT jobs FROM taken) = 0
),
transaction AS MATERIALIZED (
    SELECT pg_current_xact_id() AS xid
    WHERE EXISTS (SELECT FROM result)
),
${moment_after_id},
line AS MATERIALIZED (
    -- The keys that have had their turns are in the ring by then.
    SELECT now + 2 * %(keys)s::int * interval '1 microsecond' AS until
    FROM moment
),
planned AS MATERIALIZED (
    SELECT
        result.*,
        (next_id IS NOT NULL AND cardinality(now_holding) >= slots) IS TRUE AS fills_up,
        CASE
            WHEN next_id IS NULL OR cardinality(now_holding) >= slots THEN NULL
            WHEN tokens_left < tokens_needed
                THEN greatest(moment.now, clock.now + make_interval(secs => (tokens_needed - tokens_left) / per_second))
            -- Another transaction has a job locked that this claim would have taken.
            WHEN taken < least(most, room) AND next_rank >= turn_rank THEN moment.now + interval '20 ms'
            -- The turn goes on, but not in another rank, whose mark may be above it (fragments/turn_of_known_key.sql).
            WHEN taken < share AND next_rank = turn_rank THEN turn_at
            -- In the order of this claim, those that are at their turn first. Else the last key by name would always be cut.
            ELSE moment.now + (number + CASE WHEN goes_first THEN 0 ELSE %(keys)s::int END) * interval '1 microsecond'
        END AS next_turn_at,
        next_id IS NULL
            AND weight = 1
            AND level IS NULL
            AND cardinality(now_holding) = 0
            AND (throttled_until > clock.now) IS NOT TRUE AS is_idle
    FROM result
    CROSS JOIN clock
    CROSS JOIN moment
),
moved AS (
    UPDATE pulljobs_flow_key AS row
    SET
        turn_at = planned.next_turn_at,
        turn_rank = coalesce(planned.next_rank, 0),
        owed = CASE WHEN planned.next_turn_at = planned.turn_at THEN planned.share - planned.taken ELSE planned.owed_after END,
        is_full = planned.fills_up,
        holders = planned.now_holding,
        tokens = planned.tokens_left,
        filled_at = CASE WHEN planned.level IS NOT NULL THEN (SELECT now FROM clock) END,
        charged_since = CASE WHEN planned.level IS NOT NULL THEN coalesce(row.charged_since, (SELECT now FROM clock)) END,
        mark_priority = CASE WHEN planned.is_marked THEN planned.last_priority ELSE row.mark_priority END,
        mark_at = CASE WHEN planned.is_marked THEN planned.last_at ELSE row.mark_at END,
        mark_id = CASE WHEN planned.is_marked THEN planned.last_id ELSE row.mark_id END,
        writer = (SELECT xid FROM transaction)
    FROM planned
    WHERE row.ctid = planned.place
        AND NOT planned.is_idle
        -- Else a join may begin with all keys of all consumers.
        AND row.ctid = ANY(ARRAY(SELECT place FROM planned))
),
forgotten AS (
    DELETE FROM pulljobs_flow_key
    WHERE ctid = ANY(ARRAY(SELECT place FROM planned WHERE is_idle))
)
SELECT
    coalesce(lease.xid, pg_current_xact_id_if_assigned())::text::bigint AS xid,
    now() AS started_at,
    pg_current_snapshot()::text AS snapshot,
    ARRAY(SELECT turn_rank::int FROM reached ORDER BY turn_rank DESC) AS ranks,
    ARRAY(SELECT turn_at FROM reached ORDER BY turn_rank DESC) AS first_turns,
    lease.lease_token,
    lease.leased_until,
    taken.ids AS job_ids,
    coalesce(taken.message_ids, '{}') AS message_ids,
    coalesce(taken.priorities, '{}') AS job_priorities,
    coalesce(taken.retry_counts, '{}') AS retry_counts,
    coalesce(taken.deliveries, '{}') AS deliveries,
    coalesce(taken.suspects, '{}') AS suspects,
    EXISTS (SELECT FROM planned WHERE next_id IS NULL) AS is_emptied,
    EXISTS (SELECT FROM planned WHERE next_turn_at <= (SELECT until FROM line))
        OR (SELECT count(*) FROM turn) >= %(keys)s::int AS has_turns,
    (SELECT count(*) FROM turn) < %(keys)s::int AND EXISTS (
        SELECT
        FROM rank
        CROSS JOIN LATERAL (
            SELECT
            FROM pulljobs_flow_key
            WHERE consumer_id = %(consumer_id)s::bigint
                AND turn_rank = rank.turn_rank
                AND turn_at >= rank.mark
                AND turn_at <= (SELECT now FROM clock)
                AND key NOT IN (SELECT key FROM turn)
            ORDER BY turn_at, key
            LIMIT 1
        ) AS row
    ) AS is_contended,
    EXISTS (SELECT FROM planned WHERE fills_up) OR EXISTS (
        SELECT
        FROM pulljobs_flow_key
        WHERE consumer_id = %(consumer_id)s::bigint AND is_full
        OFFSET 0
    ) AS has_full,
    extract(epoch FROM least(
        (SELECT min(next_turn_at) FROM planned WHERE next_turn_at > (SELECT until FROM line)),
        (
            SELECT min(row.turn_at)
            FROM rank
            CROSS JOIN LATERAL (
                SELECT turn_at
                FROM pulljobs_flow_key
                WHERE consumer_id = %(consumer_id)s::bigint
                    AND turn_rank = rank.turn_rank
                    AND turn_at > (SELECT now FROM clock)
                ORDER BY turn_at, key
                LIMIT 1
            ) AS row
        )
    ) - clock_timestamp())::float8 AS turn_seconds,
    CASE
        WHEN asked.refusal IN ('paused', 'throttled') THEN extract(epoch FROM asked.closed_until - clock_timestamp())::float8
    END AS pause_seconds,
    CASE
        WHEN asked.id IS NULL THEN 'deleted'
        WHEN lease.lease_token IS NULL AND taken.jobs > 0 THEN 'repeated'
        ELSE asked.refusal
    END AS refusal
FROM taken
LEFT JOIN asked ON true
LEFT JOIN lease ON true
