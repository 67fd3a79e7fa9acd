"""Search quality on recorded tuning spaces; see docs/landscapes.md."""
