-- Expression that returns the turn of a key (row) whose waiting jobs give it a turn and a rank (excluded.turn_at, excluded.turn_rank).
-- excluded.turn_at was read from the clock after the transaction had its id (fragments/moment_after_id.sql).
CASE
    WHEN row.is_full THEN NULL
    WHEN row.turn_at IS NULL THEN greatest(excluded.turn_at, row.throttled_until)
    -- A key does not keep its place in a higher rank: claims of that rank may have gone on from there (low_water_marks.py).
    WHEN excluded.turn_rank > row.turn_rank THEN greatest(row.turn_at, excluded.turn_at)
    ELSE row.turn_at
END
