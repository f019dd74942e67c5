import json
import os

import schemathesis

# The status of each code, from the mesh's own table.
STATUS = json.loads(os.environ["WAYBILL_CODES"])


@schemathesis.check
def explained(ctx, response, case):
    """A refusal is a problem with a code that has its status, and says why."""
    diagnosed = response.status_code == 503 and case.operation.path.endswith("/mq-diagnostic")
    if response.status_code < 400 or diagnosed:
        return
    assert response.headers["content-type"] == ["application/problem+json"], response.headers
    problem = response.json()
    expected = 405 if response.status_code == 405 else STATUS[problem["code"]]
    assert response.status_code == problem["status"] == expected, problem
    assert problem["detail"] and problem["title"], problem
