"""Local planes behind the harness of the conformance cases."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("lakeshore.testing")
