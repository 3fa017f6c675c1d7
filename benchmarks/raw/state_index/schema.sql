-- The state is in partial indexes, as in most queues, and there is no low-water mark. Every change of state writes index entries.
CREATE TABLE raw_state (
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
    vacuum_truncate = off,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05
);
CREATE INDEX ON raw_state (consumer_id, priority DESC, available_at, id) WHERE state = 0;
CREATE INDEX ON raw_state (leased_until) WHERE state = 1;
