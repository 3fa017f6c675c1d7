-- Deliver jobs of one claim without results, members of batches as well, and append a sum for each batch.
-- Event: deliver. For a process that has settled members recently; others run deliver.sql.
-- Parameters: those of deliver.sql.
-- Returns one row: the columns of deliver.sql, and batch_ids bigint[] of the members that were delivered.
-- Locks: the jobs, in order of id. Index: primary key. The lease is deleted when its last job ends, unless another transaction has it locked.
${deliver}
