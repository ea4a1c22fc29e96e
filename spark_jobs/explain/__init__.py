"""What made a cell of gold: the silver rows behind it, where they came from and which runs brought them. Needs no Spark."""
