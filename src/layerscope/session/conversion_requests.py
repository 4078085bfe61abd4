"""What a session asks its converter, a line of JSON each: written by `converter`, read by
`convert`.

Where nothing comes and the pipe closes, the session was killed.
"""

from __future__ import annotations

FINISH, SUMMARISE = "finish", "summarise"
