-- Settle or give back jobs under their leases, members of batches as well, and append a sum for each batch with members that ended.
-- Events: those of finish.sql. For a process that has settled members recently; others run finish.sql.
-- Parameters: those of finish.sql.
-- Returns: the columns of finish.sql, and batch_id of a member (NULL: no member).
-- Locks: the jobs, those to deliver first, each kind in order of id. Index: primary key. Leases without further jobs are deleted, unless another transaction has them locked.
${finish}
