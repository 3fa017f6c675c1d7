-- Lock the bucket of a consumer. The claim is a later statement of the transaction, so it sees what others spent.
SELECT
FROM raw_flow_bucket
WHERE consumer_id = %(consumer_id)s::bigint
FOR NO KEY UPDATE
