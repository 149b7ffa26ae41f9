"""What runs in the ranks of a conformance run, one folder a framework."""
