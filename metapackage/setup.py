"""What metapackage/pyproject.toml leaves open: the one version, which lakeshore/_version.py knows."""

from __future__ import annotations

import runpy
from pathlib import Path

from setuptools import setup

found = runpy.run_path(str(Path(__file__).resolve().parents[1] / "lakeshore" / "_version.py"))
setup(version=found["__version__"], install_requires=[f"lakeshore=={found['__version__']}"])
