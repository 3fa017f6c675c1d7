-- Jobs with keys, leases, one bucket a consumer and one row a key. All designs of flow control use these tables.
-- `writer` is the transaction that wrote the row last: a claim uses a row only if it locked the version of its own snapshot.
CREATE TABLE raw_flow_job (
    id bigint PRIMARY KEY,
    message_id bigint NOT NULL,
    consumer_id bigint NOT NULL,
    available_at timestamptz NOT NULL,
    retry_count int NOT NULL,
    deliveries int NOT NULL,
    priority smallint NOT NULL,
    state smallint NOT NULL,
    has_slot boolean NOT NULL DEFAULT false,
    lease_token uuid,
    key text
) WITH (
    fillfactor = 45,
    vacuum_truncate = off,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05
);
CREATE INDEX ON raw_flow_job (consumer_id, priority DESC, available_at, id);
CREATE INDEX ON raw_flow_job (consumer_id, key, id) WHERE key IS NOT NULL;
CREATE TABLE raw_flow_lease (
    lease_token uuid PRIMARY KEY,
    claimed_at timestamptz NOT NULL,
    leased_until timestamptz NOT NULL,
    job_ids bigint[] NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX ON raw_flow_lease (leased_until);
CREATE TABLE raw_flow_bucket (
    consumer_id bigint PRIMARY KEY,
    tokens float8 NOT NULL,
    filled_at timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE raw_flow_key (
    consumer_id bigint NOT NULL,
    turn_at timestamptz,
    filled_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    tokens float8 NOT NULL DEFAULT 0,
    mark_id bigint NOT NULL DEFAULT 0,
    writer xid8 NOT NULL DEFAULT pg_current_xact_id(),
    owed int NOT NULL DEFAULT 0,
    weight int NOT NULL DEFAULT 1,
    is_full boolean NOT NULL DEFAULT false,
    key text NOT NULL,
    holders bigint[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (consumer_id, key)
) WITH (
    fillfactor = 50,
    vacuum_truncate = off,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX ON raw_flow_key (consumer_id, turn_at, key) WHERE turn_at IS NOT NULL;
