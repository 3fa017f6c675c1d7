-- Note which clients pulled over HTTP since the process wrote last.
-- Event: none.
-- Parameters: consumer_ids bigint[], names text[], hosts text[], addresses text[], agents text[], of one length, each
--   consumer and name once.
-- Returns: nothing.
-- Locks: the rows of the clients, in the order of consumer and name. Index: unique on consumer_id, name.
INSERT INTO pulljobs_http_client (consumer_id, name, host, address, agent, first_seen_at, seen_at)
SELECT consumer_id, name, host, address, agent, clock_timestamp(), clock_timestamp()
FROM unnest(
    %(consumer_ids)s::bigint[], %(names)s::text[], %(hosts)s::text[], %(addresses)s::text[], %(agents)s::text[]
) AS noted (consumer_id, name, host, address, agent)
ORDER BY consumer_id, name
ON CONFLICT (consumer_id, name) DO UPDATE
SET host = excluded.host, address = excluded.address, agent = excluded.agent, seen_at = excluded.seen_at
