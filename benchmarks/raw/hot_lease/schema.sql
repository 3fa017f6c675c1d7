-- Each job is a row and each claim is a lease row. A claim is a HOT update, because it writes no indexed column.
CREATE TABLE raw_hot_lease (
    id bigint PRIMARY KEY,
    message_id bigint NOT NULL,
    consumer_id bigint NOT NULL,
    available_at timestamptz NOT NULL,
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
CREATE INDEX ON raw_hot_lease (consumer_id, priority DESC, available_at, id);
CREATE TABLE raw_hot_lease_lease (
    lease_token uuid PRIMARY KEY,
    claimed_at timestamptz NOT NULL,
    leased_until timestamptz NOT NULL,
    job_ids bigint[] NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX ON raw_hot_lease_lease (leased_until);
