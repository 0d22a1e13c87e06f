"""Progress as people see it: a live line in a terminal or a notebook, else a line now and then."""
