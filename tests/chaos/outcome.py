"""Which ends a submission may have, from what it was told to do and what was done to it."""


def planned(submission, member):
    """(state, exit code, starts of the deciding replica) when nothing touches it."""
    if not submission.ender:
        return None  # only a kill ends it
    codes = submission.members[member][submission.ender]["codes"]
    for start in range(submission.restarts + 1):
        code = codes[min(start, len(codes) - 1)]
        if code == 0:
            return "FINISHED", 0, start + 1
    return "FAILED", code, submission.restarts + 1


def allowed(submission, member, experiment, harm):
    """A list of (state, exit code)."""
    ends = []
    plan = planned(submission, member)
    if plan is not None and experiment not in harm.kill_taken:
        ends.append(plan[:2])
    if harm.kill_tried:
        ends.append(("KILLED", 130))
    if experiment in harm.keepers | harm.struck:
        ends.append(("FAILED", 137))
        if plan is not None and submission.restarts > 0:
            # That death took one of the restarts that the plan counts on.
            codes = submission.members[member][submission.ender]["codes"]
            ends += [("FAILED", code) for code in codes if code != 0]
    return ends
