-- Store rows that are not valid messages, with the reason.
-- Event: none; in the transaction that publishes the others.
-- Parameters: publish_id bigint, and arrays of one length: reasons text[], errors text[], rows text[], reject_payloads bytea[].
-- Returns: nothing.
-- Locks: none. Index: none.
INSERT INTO pulljobs_rejected_row (publish_id, reason, error, row, payload, rejected_at)
SELECT %(publish_id)s::bigint, reason, error, row, nullif(payload, ''), clock_timestamp()
FROM unnest(%(reasons)s::text[], %(errors)s::text[], %(rows)s::text[], %(reject_payloads)s::bytea[])
    AS bad (reason, error, row, payload)
