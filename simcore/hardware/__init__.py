"""What the job runs on: accelerators, links, nodes, clusters, and the paths between them."""
