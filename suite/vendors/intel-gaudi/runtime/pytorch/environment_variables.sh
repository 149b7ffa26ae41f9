# Read line by line, never run. Eager: otherwise operators are queued until a step is marked, and a synchronise marks none.
export PT_HPU_LAZY_MODE=0
