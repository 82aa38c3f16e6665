"""A model of the waiting line, the session and its deadline, and all that can happen to it."""
