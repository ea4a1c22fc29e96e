"""One moment of everything that a home holds, copied to a folder, and brought back into an empty home."""
