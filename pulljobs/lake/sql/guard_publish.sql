-- Hold a bulk publish in this session, beside others who do: it is not left behind while somebody does.
-- Event: none.
-- Parameters: id bigint.
-- Returns: nothing of use.
-- Locks: the publish's advisory lock, shared, until the session ends. Index: none.
SELECT pg_advisory_lock_shared(hashtextextended('pulljobs_bulk_publish', %(id)s::bigint))
