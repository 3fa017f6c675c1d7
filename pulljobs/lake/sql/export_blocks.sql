-- Read the sizes of the tables that an export samples, with all their partitions.
-- Events: none, it reads.
-- Parameters: none.
-- Returns: archive, messages bigint, in blocks.
-- Locks: none. Index: none.
SELECT
    (
        SELECT coalesce(sum(pg_relation_size(relid)), 0)::bigint
        FROM pg_partition_tree('pulljobs_archived_job')
    ) / current_setting('block_size')::bigint AS archive,
    (
        SELECT coalesce(sum(pg_relation_size(relid)), 0)::bigint
        FROM pg_partition_tree('pulljobs_message')
    ) / current_setting('block_size')::bigint AS messages
