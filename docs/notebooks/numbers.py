# %% [markdown]
# # The mean of a number
#
# How long do people look at their phones? 1,000 people are asked, and nobody, not even the analyst,
# should learn any single answer. We plan the collection first, and then run it on simulated data.

# %%
import numpy as np

import metricshuffle as ms

# %% [markdown]
# ## State the question and the target
#
# Answers are whole minutes from 0 to 600. An hour more or less should be hidden at epsilon 1: an
# observer who sees everything that the analyst sees can shift the odds of "two hours" against
# "three hours" by a factor of at most e = 2.72. Smaller differences are hidden better, in
# proportion. `honest=0.9` relies on nine of ten people: fewer than 900 reports will be refused.

# %%
query = ms.Mean(ms.Integers(0, 600, unit="min"))
target = ms.Target(epsilon=1, delta=1e-6, distance=60)
plan = ms.plan(query, target, users=1_000, honest=0.9)
plan

# %% [markdown]
# Every protocol in the table meets the target. They differ in the error of the mean, in what one
# report reveals if the shuffler is dishonest, and in how many bits a person sends. The chosen one
# is marked.

# %%
plan.plot()

# %% [markdown]
# ## Collect
#
# There are three roles: clients randomize at home, a shuffler mixes all messages and forgets who
# sent which, and the analyst estimates. Here one notebook plays all three. The answers are
# simulated, and 950 people take part.
#
# `Randomness.seeded` makes this page the same every time, and it makes a release **unsafe**: anyone
# who knows the seed can remove the noise. The release says so, in the last line of its card. Leave
# it out in a real collection.

# %%
drawn = np.random.default_rng(1).normal(190, 70, size=950)
minutes = drawn.clip(0, 600).round().astype(int)

reports = plan.randomize(minutes, ms.Randomness.seeded(1))
shuffled = plan.shuffle(reports)
release = plan.estimate(shuffled)
release

# %%
print(f"released: {release.value:.2f} min")
print(f"the truth, which nobody would know: {minutes.mean():.2f} min")

# %% [markdown]
# ## How large is the error?
#
# A simulation answers this before anyone is asked, without data.

# %%
ms.simulate(plan)

# %% [markdown]
# The second guarantee of the card above is for a shuffler that colludes with the analyst. It is
# weaker: weigh it before you ask anyone. [What is promised](../guarantee.md) says more.
