"""A package, so that worker processes can import `tests.doubles` by name."""
