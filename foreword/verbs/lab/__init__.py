"""The commands of `foreword lab`."""
