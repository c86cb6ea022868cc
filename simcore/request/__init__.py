"""From the words of a request to a job with every name and default resolved."""
