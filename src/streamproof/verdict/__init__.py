"""What loss, duplication and the guarantees mean, and how the verdict on a run comes about."""
