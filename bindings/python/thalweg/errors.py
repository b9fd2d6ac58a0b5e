"""What this package raises."""


class ThalwegError(Exception):
    """What was asked for can not be."""


class EngineError(ThalwegError):
    """The database in process refused. `code` says what to do: invalid, not_found, locked, corrupt, io, limit, interrupted, closed, unsupported,
    unavailable, rejected (some rows were left out, the others are written), internal."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code
