-- Wake the processes that wait for jobs of these consumers; nothing is sent if no process waits.
-- Event: none; after the commit of what made the jobs claimable, in a transaction of its own.
-- Parameters: consumer_ids bigint[], database_channel text.
-- Returns: nothing of use.
-- Locks: the global one of NOTIFY, only when something is sent. Index: waiter primary key.
SELECT
    -- A consumer once, however many wait for it: NOTIFY sends the same text once a transaction.
    pg_notify(%(database_channel)s::text, consumer_id::text),
    -- The waiters need not wait for the disk: after a crash of the server there are none.
    set_config('synchronous_commit', 'off', true)
FROM pulljobs_pull_waiter
WHERE waiting_until > clock_timestamp()
    AND consumer_id = ANY(%(consumer_ids)s::bigint[])  -- not in notify_one
    AND consumer_id = %(consumer_id)s::bigint  -- only in notify_one
