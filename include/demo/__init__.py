"""The demo: the whole pipeline once, and its reconciliation."""
