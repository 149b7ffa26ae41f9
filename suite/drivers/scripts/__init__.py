"""Somebody else's program as a rank: started unchanged, watched by a callback or by what it prints."""
