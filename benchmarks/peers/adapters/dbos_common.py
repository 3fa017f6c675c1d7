"""Settings that both adapters of dbos share."""

import logging

import common

POLL_SECONDS = 0.02
URL = common.database_url("postgresql+psycopg")
CONFIG = {
    "name": "peer",
    "system_database_url": URL,
    "run_admin_server": False,
    "log_level": "ERROR",
    "application_version": "1",
}

logging.disable(logging.WARNING)
