"""Set-up: the virtual environment, jars and class archive of a checkout, and what its lock files must hold."""
