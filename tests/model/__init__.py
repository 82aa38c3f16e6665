"""A model of the waiting line, the session and the lease, and all that can happen to it."""
