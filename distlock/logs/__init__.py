"""The app's log: loggers whose lines nobody can forge, and receivers of signals."""
