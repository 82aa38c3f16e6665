"""What distlock costs and what it stands, measured beside others. Not part of the wheel."""
