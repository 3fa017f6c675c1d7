-- Expression that returns the seconds until the next delayed job of a consumer is due (float8; NULL: there is none).
-- Parameters: consumer_id bigint. Needs walk (priority) of fragments/priority_walk.sql and clock (now).
(
    SELECT extract(epoch FROM min(due.available_at) - clock_timestamp())::float8
    FROM walk
    CROSS JOIN LATERAL (
        SELECT available_at
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND priority = walk.priority
            AND available_at > (SELECT now FROM clock)
            AND state = 'QUEUED'
        ORDER BY available_at, id
        LIMIT 1
    ) AS due
)
