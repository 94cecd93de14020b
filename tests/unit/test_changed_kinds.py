"""What a write of the records changes is read off its statements; no table of resources is forgotten."""

from __future__ import annotations

import re

import pytest

from lakeshore.server.changes import KINDS
from lakeshore.server.records.changed import EVENTS, PARTS, SILENT, changed, kind_of, written
from lakeshore.server.records.statements import SQL

TABLES = re.findall(r"CREATE TABLE (\w+)", SQL.schema)


@pytest.mark.parametrize("table", TABLES)
def test_every_table_of_the_records_has_a_kind_that_can_be_asked_for(table: str) -> None:
    if table not in SILENT | EVENTS:
        assert PARTS.get(table, (kind_of(table), ""))[0] in KINDS


def test_every_statement_that_writes_names_its_table() -> None:
    for name, text in vars(SQL).items():
        if name != "schema" and not text.lstrip().upper().startswith(("SELECT", "WITH", "PRAGMA")):
            assert written(text)[1] in TABLES, name


def test_what_names_no_namespace_is_of_the_one_in_its_audit_line() -> None:
    note = (SQL.note, {"now": 1.0, "actor": "a", "ns": "n", "action": "token.revoke", "subject": "t"})
    assert list(changed([(SQL.revoke_token, {"id": "1", "now": 1.0}), note])) == [("tokens", "n", "1", False)]
    assert list(changed([(SQL.touch_token, {"id": "1", "at": 1.0})])) == []
    assert list(changed([(SQL.drop_mode, {"ns": "n", "name": "m"})])) == [("modes", "n", "m", True)]
    assert list(changed([(SQL.drop_modes_of, {"ns": "n"})])) == [("modes", "n", None, True)]
