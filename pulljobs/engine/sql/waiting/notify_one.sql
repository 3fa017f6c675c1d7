-- Wake the processes that wait for jobs of one consumer; nothing is sent if no process waits.
-- Event: none. In place of notify.sql, which the server often plans again for each list of consumers.
-- Parameters: consumer_id bigint, database_channel text.
-- Returns: nothing of use.
-- Locks: those of notify.sql. Index: waiter primary key.
${notify}
