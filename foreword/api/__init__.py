"""The Python interface: one function per verb of the command line, with its names and errors."""
