"""What options of a command line take. Each raises ArgumentTypeError that says what was found and what was expected."""

from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence


def whole(text: str) -> int:
    """A whole number >= 0 that fits a bigint."""
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ArgumentTypeError(f"found {text!r}, expected a whole number")
    return int(text)


def within(numbers: range) -> Callable[[str], int]:
    """Takes a whole number of a range."""

    def parse_number(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) in numbers):
            raise ArgumentTypeError(f"found {text!r}, expected a whole number from {numbers.start} to {numbers.stop - 1}")
        return int(text)

    return parse_number


def some_of(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Takes some of these names, with commas between them."""

    def parse_names(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(","))
        if any(name not in known for name in names):
            raise ArgumentTypeError(f"found {text!r}, expected some of {','.join(known)}")
        return names

    return parse_names
