"""How the core's instructions are performed: one module a concern. Each tells how it went by an event, and later."""
