"""`lakeshore admin`: namespaces, their tokens, and the server's own secrets key, for who has the admin token.

Reference: cli/examples/auth.md, "Minting tokens for other people".
"""

from __future__ import annotations

import click

from ..groups import Group
from .enroll import enroll_tokens
from .namespaces import namespace
from .secrets import secrets
from .tokens import tokens


@click.group(cls=Group, aliases={"ns": "namespace", "namespaces": "namespace", "token": "tokens"})
def admin() -> None:
    """Tokens and namespaces. Needs LAKESHORE_ADMIN_TOKEN, or to run on the machine that serves, as its user."""


admin.add_command(tokens)
admin.add_command(namespace)
admin.add_command(enroll_tokens)
admin.add_command(secrets)
