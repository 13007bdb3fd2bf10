"""What is sent to a job: records with an identity, and an outcome for each send."""
