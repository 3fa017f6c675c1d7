-- Find the processes that drive bulk publishes on a host.
-- Event: none.
-- Parameters: host text.
-- Returns: driver text (host:pid).
-- Locks: none. Index: none; the ledger is small.
SELECT DISTINCT driver
FROM pulljobs_bulk_publish
WHERE state = 'open' AND starts_with(driver, %(host)s::text || ':')
