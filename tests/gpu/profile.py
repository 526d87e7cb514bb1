"""What each kernel takes, from ncu's CSV of gpu__time_duration.sum: python profile.py FILE."""
import collections
import csv
import sys

UNITS = {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}  # in microseconds; ncu 2025 writes the short ones
taken = collections.defaultdict(list)
with open(sys.argv[1]) as file:
    for row in csv.DictReader(line for line in file if line.startswith('"')):
        unit = row["Metric Unit"].replace("nsecond", "ns").replace("usecond", "us").replace("msecond", "ms").replace("second", "s")
        taken[row["Kernel Name"]].append(float(row["Metric Value"].replace(",", "")) * UNITS[unit])
everything = sum(map(sum, taken.values()))
for name, times in sorted(taken.items(), key=lambda each: -sum(each[1])):
    print(f"{sum(times):10.0f} us {100 * sum(times) / everything:5.1f} % {len(times):4} x {sum(times) / len(times):9.1f}  {name[:110]}")
print(f"{everything:10.0f} us in {sum(map(len, taken.values()))} kernels")
