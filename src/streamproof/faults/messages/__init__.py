"""Messages between the job and its servers that are held, dropped, answered late, or answered to nobody."""
