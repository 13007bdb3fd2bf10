"""What tables of a lakehouse have in common, whatever their format."""
