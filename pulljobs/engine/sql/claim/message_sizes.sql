-- Read the sizes of the messages of claimed jobs.
-- Event: none.
-- Parameters: ids bigint[], and their bounds lowest, highest bigint, so that only those days' partitions are read.
-- Returns: id, size bigint: the bytes of payload and headers; in no order.
-- Locks: none. Index: the primary key of each partition.
-- octet_length of a large payload reads its length only.
SELECT
    id,
    octet_length(payload) + (
        SELECT COALESCE(SUM(octet_length(header.key) + octet_length(header.value)), 0)
        FROM jsonb_each_text(headers) AS header
    ) AS size
FROM pulljobs_message
WHERE id = ANY(%(ids)s::bigint[])
    AND id >= %(lowest)s::bigint
    AND id <= %(highest)s::bigint
