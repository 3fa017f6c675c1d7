-- Tell which run of a server this is: another one may have lost what the last one committed.
-- Event: none; before a claim behind a pooler, whose connections outlast the server's.
-- Parameters: none.
-- Returns one row: started_at.
-- Locks: none.
SELECT pg_postmaster_start_time() AS started_at
