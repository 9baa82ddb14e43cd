"""Settings of a PostgreSQL server that make a store slow, or show what reports arrive."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from tests.tables import check_all
from typer.testing import CliRunner

from metricshuffle.cli.command_group import app
from metricshuffle.collection.store.server_settings import LOGGING, setting_warnings

GOOD = {
    "checkpoint_timeout": "1800",
    "max_wal_size": "8192",
    "wal_compression": "lz4",
    "full_page_writes": "on",
    "max_prepared_transactions": "0",
    "synchronous_standby_names": "FIRST 1 (first, second)",
    **LOGGING,
}
BAD = {
    "checkpoint_timeout": "300",
    "max_wal_size": "1024",
    "wal_compression": "off",
    "full_page_writes": "off",
    "max_prepared_transactions": "5",
    "synchronous_standby_names": "ANY 1 (first, *)",
    "log_statement": "all",
    "log_min_duration_statement": "0",
    "log_min_duration_sample": "100",
    "log_parameter_max_length_on_error": "-1",
    "auto_explain.log_min_duration": "10",
}


def test_nothing_is_said_about_good_settings() -> None:
    assert setting_warnings(GOOD) == []
    without = {name: text for name, text in GOOD.items() if "." not in name}
    assert setting_warnings(without) == []


@check_all("name", BAD)
def test_each_bad_setting_is_named_with_its_remedy(name: str) -> None:
    [warning] = setting_warnings({**GOOD, name: BAD[name]})
    assert warning.startswith(f"{name} is ")
    assert re.search(r"[Ss]et it to \S+", warning)


def test_doctor_checks_a_database(new_postgres_url: Callable[[], str]) -> None:
    """The one that these tests start has the settings of a new installation."""
    url = new_postgres_url()
    mark = "&" if "?" in url else "?"
    logging = f"{url}{mark}options=-c%20log_statement%3Dall"
    for address, is_logging in ((url, False), (logging, True)):
        shown = CliRunner().invoke(app, ["doctor", "--store", address, "--json"])
        warnings = json.loads(shown.stdout)["warnings"]
        assert shown.exit_code == 1
        assert any(warning.startswith("checkpoint_timeout is 300 s") for warning in warnings)
        assert any(warning.startswith("log_statement is all") for warning in warnings) == is_logging
    text = CliRunner().invoke(app, ["doctor", "--store", url]).stdout
    assert "wal_compression" in text


@pytest.mark.parametrize("url", ["sqlite:///x.db", "postgresql://127.0.0.1:1/x"])
def test_doctor_says_what_it_cannot_check(url: str) -> None:
    shown = CliRunner().invoke(app, ["doctor", "--store", url])
    assert shown.exit_code == 2
    assert "PostgreSQL" in shown.stderr
