"""Help for tests: real servers (`server`), broken links (`proxy`), aimed faults (`chaos`)."""
