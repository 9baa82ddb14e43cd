"""Settings of a PostgreSQL server that make a store slow or show which reports arrive."""

from __future__ import annotations

from collections.abc import Mapping

CHECKPOINT_SECONDS = 1800
JOURNAL_MEGABYTES = 8192
SETTINGS_QUERY = "SELECT name, setting FROM pg_settings WHERE name = ANY(?::text[])"
NAMES = (
    "checkpoint_timeout",
    "max_wal_size",
    "wal_compression",
    "full_page_writes",
    "max_prepared_transactions",
    "synchronous_standby_names",
    "log_statement",
    "log_min_duration_statement",
    "log_min_duration_sample",
    "log_parameter_max_length_on_error",
    "auto_explain.log_min_duration",
)
"""Settings that are checked; those of auto_explain exist only if that module is loaded."""
LOGGING = {
    "log_statement": "none",
    "log_min_duration_statement": "-1",
    "log_min_duration_sample": "-1",
    "log_parameter_max_length_on_error": "0",
    "auto_explain.log_min_duration": "-1",
}
"""Values with which the server logs no statement, as it would show tags and times of reports."""


def setting_warnings(settings: Mapping[str, str]) -> list[str]:
    """Sentences about settings that should be changed, given values in the server's units."""
    warnings = []
    timeout = int(settings["checkpoint_timeout"])
    if timeout < CHECKPOINT_SECONDS:
        warnings.append(
            f"checkpoint_timeout is {timeout:,} seconds: after each checkpoint whole pages of "
            "indexes are written for reports. Set it to 30min."
        )
    if (size := int(settings["max_wal_size"])) < JOURNAL_MEGABYTES:
        warnings.append(
            f"max_wal_size is {size:,} MB, so checkpoints come early under load. Set it to 8GB."
        )
    if settings["wal_compression"] == "off":
        warnings.append("wal_compression is off: set it to lz4, which makes the journal smaller.")
    if settings["full_page_writes"] != "on":
        warnings.append("full_page_writes is off: a power failure may damage pages. Set it to on.")
    if settings["max_prepared_transactions"] != "0":
        warnings.append(
            "max_prepared_transactions is not 0: a prepared transaction that nobody ends would "
            "keep a collection from closing. Set it to 0."
        )
    if "*" in (names := settings["synchronous_standby_names"]):
        warnings.append(
            f"synchronous_standby_names is {names}: a backup program that copies the server counts "
            "as its standby. Set it to the names of the standbys, which are their cluster_name."
        )
    warnings += [
        f"{name} is {settings[name]}: the server's log would contain tags and times of reports. "
        f"Set it to {safe}."
        for name, safe in LOGGING.items()
        if settings.get(name, safe) != safe
    ]
    return warnings
