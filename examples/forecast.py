"""A table of your own: train, forecast, score, save and load."""

import numpy as np
import pandas as pd

from itocast import SDEHNN, Fitted, metrics
from itocast.data.table import read_table
from itocast.data.windows import Preparation, split
from itocast.training import Training

random = np.random.default_rng(0)
hours = np.arange(3000)
spread = 2 + np.sin(hours * 2 * np.pi / 24)  # the noise has a daily course
frame = pd.DataFrame(
    {
        "time": pd.date_range("2024-01-01", periods=len(hours), freq="h"),
        "load": 50 + 10 * np.sin(hours * 2 * np.pi / 24) + spread * random.standard_normal(len(hours)),
    }
)

table = read_table(frame, targets=["load"], time="time")
parts = split(len(table))  # 60 / 20 / 20 in the order of time
preparation = Preparation.fit(table, parts.train, window=24, horizon=6)
fitted = Fitted.train(table, parts, preparation, SDEHNN, Training(epochs=8))
law, y = fitted.forecast(table, parts.test)  # six steps ahead from every hour of the test part

scores = metrics.evaluate(law, y)
print(f"RMSE {scores['rmse']:.2f} (the noise alone: {np.sqrt(4.5):.2f}), in 95 %: {100 * scores['coverage_95']:.1f} %")
low, high = law.interval(level=95)
for step in range(law.shape[1]):
    bounds = f"[{low[-1, step, 0]:.1f}, {high[-1, step, 0]:.1f}]"
    print(f"{step + 1} h ahead: {law.mean[-1, step, 0]:.1f}, 95 % interval {bounds}, observed {y[-1, step, 0]:.1f}")

fitted.save("model")
again, _ = Fitted.load("model").forecast(table, parts.test)
print("the loaded model gives the same forecasts:", bool((again.mean == law.mean).all()))
