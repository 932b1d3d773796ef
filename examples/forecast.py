"""A table of your own: train, forecast, score, save and load."""

import numpy as np
import pandas as pd

from itocast import SDEHNN, Fitted, Preparation, Training, metrics, read_table, split

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
ahead = fitted.ahead(table)  # the six hours after the table
low, high = ahead.interval(level=95)  # tensors (rows, horizon, targets)
for step in range(6):
    print(f"{step + 1} h ahead: {ahead.mean[0, step, 0]:.1f}, 95 %: [{low[0, step, 0]:.1f}, {high[0, step, 0]:.1f}]")

fitted.save("model")
again, _ = Fitted.load("model").forecast(table, parts.test)
print("the loaded model gives the same forecasts:", bool((again.mean == law.mean).all()))
