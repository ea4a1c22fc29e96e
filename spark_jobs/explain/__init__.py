"""What made a cell of gold: its silver rows, where they came from and which runs brought them. Needs no Spark."""
