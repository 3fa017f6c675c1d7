-- Deliver a single job without a result, also a member of a batch, and append a sum for the batch. It saves the grouping of deliver_members.sql.
-- Event: deliver. For a process that has settled members recently; others run deliver.sql.
-- Parameters: those of deliver.sql, with a single job.
-- Returns one row: the columns of deliver.sql, and batch_ids bigint[], empty or that of the member that was delivered.
-- Locks: the job. Index: primary key. The lease is deleted when its last job ends, unless another transaction has it locked.
${deliver}
