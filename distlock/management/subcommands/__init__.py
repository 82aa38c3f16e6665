"""The subcommands of `manage.py distlock`, one module each."""
