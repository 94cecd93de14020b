"""What people write against: `@udf`, `dls.run`, queues, planes and workers.

Import from `lakeshore` or `dreamlake.lakeshore`.
"""
