-- Each job is a row that contains its lease. A claim is a HOT update, because it writes no indexed column.
CREATE TABLE raw_hot (
    id bigint PRIMARY KEY,
    message_id bigint NOT NULL,
    consumer_id bigint NOT NULL,
    available_at timestamptz NOT NULL,
    claimed_at timestamptz,
    leased_until timestamptz,
    retry_count int NOT NULL,
    deliveries int NOT NULL,
    priority smallint NOT NULL,
    state smallint NOT NULL,
    lease_token uuid
) WITH (
    fillfactor = 45,
    vacuum_truncate = off,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05
);
CREATE INDEX ON raw_hot (consumer_id, priority DESC, available_at, id);
