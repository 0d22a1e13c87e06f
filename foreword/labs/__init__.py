"""Labs: questions with answers that anyone can check."""
