"""Leases: locks that outlive their process, with an expiry."""
