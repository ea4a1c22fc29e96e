"""Other engines on the same bronze rows: each a module that runs in a process of its own."""
