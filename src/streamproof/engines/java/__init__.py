"""What the engines share whose jobs are programs in Java: a source that is compiled, or a jar."""
