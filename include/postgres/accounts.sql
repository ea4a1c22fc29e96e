-- The accounts as the bank's own system knows them: what a job looks up by account_id. May be run again at any time.
CREATE TABLE IF NOT EXISTS accounts (
    account_id    text        PRIMARY KEY,
    district_id   integer,
    frequency     text,
    creation_date date,
    updated_at    timestamptz NOT NULL
);
