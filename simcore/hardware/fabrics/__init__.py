"""A cluster's network as a graph: kinds of fabric, one file each, and users' own links."""
