# %% [markdown]
# # Account for your own randomizer
#
# You have a local randomizer and a shuffler. What do all shuffled reports together hide?

# %%
import numpy as np

import metricshuffle as ms
from metricshuffle.randomizers import Channel

# %% [markdown]
# ## Write it down as a matrix
#
# The matrix has a row for each value and a column for each report. Here people report a day of the
# week, and days that are close to each other (around the week) are confused more often.

# %%
days = np.arange(7)
around = np.abs(days[:, None] - days)
steps = np.minimum(around, 7 - around)
weights = np.exp(-steps / 2)
week = Channel(weights / weights.sum(axis=1, keepdims=True))

# %% [markdown]
# ## What shuffling adds
#
# 10,000 people report, each once. The answer is a band: the upper end is certified, and can become
# a guarantee; at least the lower end is certainly revealed, on some data set.

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
# ## The upper bound in detail
#
# `upper` is a privacy profile: delta for every epsilon, Rényi divergences, and the trade-off
# between the two errors of a test.

# %%
amplification.upper.plot()

# %%
curve = amplification.upper.tradeoff(distance=1, points=32)
print(f"with 5 % false alarms, at least {100 * curve(0.05):.1f} % are missed")

# %% [markdown]
# ## How many people does it take?
#
# The inverse question: how many must report for epsilon 0.1 at delta 1e-6?

# %%
print(ms.fewest_users(week, epsilon=0.1, delta=1e-6).upper)

# %% [markdown]
# [The how-to](../how-to/account-for-your-own-randomizer.md) checks a randomizer with a battery of
# tests and makes `plan` offer it; [beyond the blanket](../beyond-the-blanket.md) describes the
# bound behind the band.
