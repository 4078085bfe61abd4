"""What a program asks of the functions of MXNet is answered as it is without a recording."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.recorded import TIMEOUT_S, record

QUESTIONS = Path(__file__).resolve().parent.parent / "programs" / "mxnet_questions.py"


def test_a_recording_changes_no_answer_about_the_functions_that_it_watches(
    mxnet_python: str, native_agent: Path, tmp_path: Path
) -> None:
    alone = subprocess.run(
        [mxnet_python, str(QUESTIONS)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )

    recorded = record(mxnet_python, str(QUESTIONS), tmp_path)

    assert recorded.status == 0, recorded.stderr
    assert not recorded.rows("SELECT * FROM problems")
    answers = json.loads(alone.stdout)
    assert len(answers) > 200
    assert json.loads(recorded.stdout) == answers
    # They are watched all the same.
    rows = recorded.rows(
        "SELECT name, count(*)::INT AS count FROM spans WHERE kind = 'loader' GROUP BY ALL"
    )
    assert rows[0]["name"] == "DataLoader.__next__"
    assert rows[0]["count"] > 5
