"""Intervals that hold what they say: choose a calibration, ask the doctor, and follow a stream whose noise grows."""

import numpy as np
import pandas as pd

from itocast import Forecaster

random = np.random.default_rng(0)
hours = pd.date_range("2024-01-01", periods=3600, freq="h")
loud = np.arange(len(hours)) >= 2800
noise = random.standard_t(4, size=len(hours)) * np.where(loud, 3, 1)
table = pd.DataFrame({"ds": hours, "y": 50 + 10 * np.sin(2 * np.pi * hours.hour / 24) + noise})
before, after = table[:2400], table[2400:]

forecaster = Forecaster(model="hnn", training={"epochs": 20}, calibration=None).fit(before)
forecaster.calibrate(before, "auto")  # nothing is trained; the newest fifth decides
print("calibration", forecaster.fitted.calibration)

print()
print(forecaster.diagnose(table))  # finds since when intervals are too narrow

forecaster.calibrate(before, "adaptive")
held = []
for day in range(0, len(after), 24):  # a day at a time: forecast it hour by hour, then tell what happened
    told = forecaster.backtest(table[: 2400 + day + 24], start=table["ds"].iloc[2399 + day], level=90)
    held += list((told["lo-90"] <= told["y"]) & (told["y"] <= told["hi-90"]))
    forecaster.observe(after[day : day + 24])
print(f"\ninside the 90 % intervals: {100 * np.mean(held[:400]):.1f} % of the quiet hours,", end=" ")
print(f"{100 * np.mean(held[400:700]):.1f} % of the first 300 loud ones, {100 * np.mean(held[700:]):.1f} % of the rest")
