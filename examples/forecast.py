"""Forecasts of a table of your own: two shops, a promotion that is known ahead, and six days to come."""

import numpy as np
import pandas as pd

from itocast import Forecaster

random = np.random.default_rng(0)
days = pd.date_range("2022-01-01", periods=700, freq="D")
shops = []
for shop, size in (("north", 40), ("south", 400)):
    promotion = random.uniform(size=len(days)) < 0.2
    sales = size * (1 + 0.3 * (days.day_of_week.to_numpy() >= 5) + 0.5 * promotion)
    sales = random.poisson(sales)
    shops.append(pd.DataFrame({"shop": shop, "day": days, "sales": sales, "promotion": promotion}))
table = pd.concat(shops)
known = table[table["day"] < "2023-11-25"]  # what has happened; the last six days are to be forecast

forecaster = Forecaster(horizon=6, support="positive", training={"epochs": 10})
forecaster.fit(known, target="sales", time="day", id="shop", future=["promotion"])

ahead = table[table["day"] >= "2023-11-25"]
forecast = forecaster.predict(level=90, future=ahead)  # a frame: shop, day, mean, median, lo-90, hi-90, …
print(forecast.drop(columns=["aleatoric", "epistemic"]).to_string(index=False, float_format="%.0f"))

paths = forecaster.predict(paths=500, future=ahead)  # courses whose days hang together
for shop, total in paths.groupby(["shop", "path"])["y"].sum().groupby("shop"):
    low, high = total.quantile([0.05, 0.95])
    print(f"sales of all six days in the {shop}, 90 % interval: {low:.0f} to {high:.0f}")

scores = forecaster.evaluate(known, start=0.8)  # from every day of the last fifth, with true lags
print(f"\ninside the 80 % interval of the newest days: {100 * scores['coverage_80'][0]:.1f} %")

forecaster.save("shop-model")
again = Forecaster.load("shop-model").predict(level=90, future=ahead)
print("the loaded forecaster gives the same forecasts:", again.equals(forecast))
