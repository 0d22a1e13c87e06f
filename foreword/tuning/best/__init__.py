"""Strategy `best`: candidates judged by cross-validation on the training labels, and averaged."""
