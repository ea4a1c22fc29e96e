"""Documentation that lives with the code: pages written by hand, decisions, and pages made from the declarations."""
