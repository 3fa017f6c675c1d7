-- Read the start time of the server: after a restart commits may be lost, and behind a pooler it may be another server.
-- Event: none; before a claim behind a pooler, whose connections outlast the server's.
-- Parameters: none.
-- Returns one row: started_at.
-- Locks: none.
SELECT pg_postmaster_start_time() AS started_at
