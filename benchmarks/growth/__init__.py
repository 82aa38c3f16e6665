"""What many waiters, keys and sessions cost, beside a model on paper: ``make growth``.

- `__main__`: the command
- `measure`: the measurements
- `sessions`: a process that carries many sessions
- `model`: what is expected of a fleet, in formulas
- `page`: tables and plot
"""
