"""One program for each lock under comparison; all speak the protocol that `python.py` describes."""
