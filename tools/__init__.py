"""For people who add things: data of a case, migration of another suite's configuration."""
