"""How wide the kernels' blocks are."""


def block(count: int) -> int:
    """The next power of two: a kernel takes no other width, and leaves out what is beyond `count`."""
    return 1 << (count - 1).bit_length()
