"""The check of names and reasons that people give: one line of text, so that a record or a message never looks like two."""

LONGEST = 2000


def problem(text: object, least: int = 1, most: int = LONGEST) -> str | None:
    """What is wrong with a text, in one line that does not repeat it; None for one line of `least` to `most` characters.

    Refused are line ends and every other character that does not print; text is never changed to fit.
    """
    if not isinstance(text, str):
        return "found no text, expected one line of text"
    for place, character in enumerate(text[: most + 1], start=1):
        if not character.isprintable():
            return f"found U+{ord(character):04X} at character {place}, expected one line of text"
    if len(text) > most:
        return f"found {len(text)} characters, expected {least} to {most}"
    if least and not text.strip():
        return f"found no text, expected {least} to {most} characters"
    return None
