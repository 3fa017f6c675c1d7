-- Return a text that differs once any of these consumers, or the channel of one, was changed, created or deleted.
-- Event: none; for a worker, which reads the rows of the consumers only after a change: they may be thousands.
-- Parameters: consumer_ids bigint[]; with_push boolean (and all push consumers).
-- Returns one row: version (NULL: there is no such consumer).
-- Locks: none. Index: none, the consumers are all read.
-- Hashes are combined in any order. To sort ten thousand rows and join their texts takes twice as long, and the worker claims nothing meanwhile.
SELECT bit_xor(hash_record_extended(ROW(consumer.id, consumer.ctid, consumer.xmin, channel.ctid, channel.xmin), 0))::text AS version
FROM pulljobs_consumer AS consumer
JOIN pulljobs_channel AS channel ON channel.id = consumer.channel_id
-- In a hash: ANY would compare each with each.
WHERE consumer.id IN (SELECT unnest(%(consumer_ids)s::bigint[]))
    OR (%(with_push)s::boolean AND consumer.type = 'push')
