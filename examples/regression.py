"""Regression on rows of numbers: mean, interval, and where the model knows little."""

import numpy as np

from itocast import SDERegressor

random = np.random.default_rng(0)
x = random.uniform(-2, 2, (600, 1))
noise = 0.1 + 0.3 * np.abs(x[:, 0])  # the noise grows with the distance from 0
y = np.sin(2 * x[:, 0]) + noise * random.standard_normal(len(x))

model = SDERegressor().fit(x, y)
points = np.array([[0.0], [1.0], [2.0], [4.0]])  # the last lies outside of all that was seen
lower, upper = model.predict_interval(points, level=90)
law = model.predict_distribution(points)
for i, point in enumerate(points[:, 0]):
    aleatoric, epistemic = law.aleatoric[i].sqrt().item(), law.epistemic[i].sqrt().item()
    print(
        f"x = {point:.0f}: {law.mean[i].item():5.2f}, 90 %: [{lower[i]:5.2f}, {upper[i]:5.2f}], "
        f"deviation by noise {aleatoric:.2f}, by what is not known {epistemic:.2f}"
    )

model.save("curve-model")
again = SDERegressor.load("curve-model")
print("the loaded model gives the same means:", bool((again.predict(points) == model.predict(points)).all()))
