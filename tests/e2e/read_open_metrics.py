"""Reads the metrics of a daemon as Prometheus does, in both formats, until its replica was sampled.

    read_open_metrics.py URL
"""

import sys
import urllib.request

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as old_families


def read(accept):
    request = urllib.request.Request(sys.argv[1], headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def samples_of(families):
    samples = {}
    for family in families:
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples


def one(samples, of, **labels):
    found = [value for have, value in samples[of] if labels.items() <= have.items()]
    assert len(found) == 1, (of, labels, samples[of])
    return found[0]


kind, text = read("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
assert kind.startswith("application/openmetrics-text"), kind
samples = samples_of(open_families(text))
assert one(samples, "dtrain_experiments", state="RUNNING") == 1
assert one(samples, "dtrain_experiments_ended_total", state="FAILED") == 1
assert one(samples, "dtrain_metric", project="toaster", experiment="1", name="loss") == 0.25
assert one(samples, "dtrain_host_up") == 1
assert one(samples, "dtrain_host_cpus") == 4
assert one(samples, "dtrain_host_cpus_free") == 3.5
assert one(samples, "dtrain_starts_total") == 2
assert one(samples, "dtrain_placing_seconds_count") >= 2
assert one(samples, "process_resident_memory_bytes") > 1e6

kind, text = read("text/plain")
assert kind.startswith("text/plain"), kind
assert one(samples_of(old_families(text)), "dtrain_experiments_ended_total", state="FAILED") == 1

# Sampled once a second since it was asked for first; a sample that never comes ends the test by its time.
while True:
    samples = samples_of(open_families(read("application/openmetrics-text")[1]))
    if samples.get("dtrain_replica_memory_bytes"):
        break
assert one(samples, "dtrain_replica_memory_bytes", project="toaster", experiment="1", replica="1.train") > 0
assert one(samples, "dtrain_replica_requested_cpus", replica="1.train") == 0.5
