# %% [markdown]
# # Account for your own randomizer
#
# You have a way to randomize a value at home, and a shuffler. What do all shuffled reports together hide?

# %%
import numpy as np

import metricshuffle as ms
from metricshuffle.randomizers import Channel

# %% [markdown]
# ## Write it down as a matrix
#
# A row for each value, a column for each report. Here people report a day of the week, and days that are near each other
# (around the week) are confused more often.

# %%
days = np.arange(7)
around = np.abs(days[:, None] - days)
steps = np.minimum(around, 7 - around)
weights = np.exp(-steps / 2)
week = Channel(weights / weights.sum(axis=1, keepdims=True))

# %% [markdown]
# ## What shuffling buys
#
# 10,000 people report, each once. The answer is a band: the upper end is certified, and a guarantee may rest on it; the
# lower end is certainly given away, on some data set.

# %%
amplification = ms.amplify(week, users=10_000)
amplification

# %%
amplification.plot()

# %% [markdown]
# `epsilon(delta)` has both ends as numbers. They are less than a thousandth apart here.

# %%
band = amplification.epsilon(delta=1e-6)
print(f"between {band.lower:.6f} and {band.upper:.6f}")
print(f"one report alone: {amplification.local.pure(1.0):g}")

# %% [markdown]
# ## Everything about the upper bound
#
# `upper` is a privacy profile: delta for every epsilon, Rényi divergences, and the trade-off between the two errors of a
# test.

# %%
amplification.upper.plot()

# %%
curve = amplification.upper.tradeoff(distance=1, points=32)
print(f"with 5 % false alarms, at least {100 * curve(0.05):.1f} % are missed")

# %% [markdown]
# ## How many people does it take?
#
# The other way round: how many must report for epsilon 0.1 at delta 1e-6?

# %%
print(ms.fewest_users(week, epsilon=0.1, delta=1e-6).upper)

# %% [markdown]
# [The how-to](../how-to/account-for-your-own-randomizer.md) checks a randomizer with a battery of tests and makes `plan`
# offer it; [beyond the blanket](../beyond-the-blanket.md) is the bound behind the band.
