"""Live products: queries that have no counterpart in gold. One file declares one."""
