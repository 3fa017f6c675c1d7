-- A claim moves its rows from the job table to an array in one lease row.
CREATE TABLE raw_array_job (
    id bigint PRIMARY KEY,
    message_id bigint NOT NULL,
    consumer_id bigint NOT NULL,
    available_at timestamptz NOT NULL,
    retry_count int NOT NULL,
    deliveries int NOT NULL,
    priority smallint NOT NULL
) WITH (
    vacuum_truncate = off,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05
);
CREATE INDEX ON raw_array_job (consumer_id, priority DESC, available_at, id);
CREATE TABLE raw_array_lease (
    lease_token uuid PRIMARY KEY,
    claimed_at timestamptz NOT NULL,
    leased_until timestamptz NOT NULL,
    jobs raw_array_job[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX ON raw_array_lease (leased_until);
