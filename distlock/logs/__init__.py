"""The app's log: loggers whose lines nobody can forge, receivers of signals, and the audit record.

Every module gets its logger from `loggers`, which imports nothing of the app but `text`.
`receivers` log the app's signals. `audit` records the acts of operators.
"""

from __future__ import annotations
