"""What a user writes: experiments, matrices, the schedule that follows from them, random plans."""
