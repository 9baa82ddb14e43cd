# %% [markdown]
# # The mean of a number
#
# How long do people look at their phones? 1,000 of them are asked, and nobody, the analyst included, shall learn
# anybody's answer. What is collected is planned first, and then run on invented data.

# %%
import numpy as np

import metricshuffle as ms

# %% [markdown]
# ## Say what is asked and what is to be hidden
#
# Answers are whole minutes from 0 to 600. An hour more or less shall be hidden at epsilon 1: whoever sees everything
# that the analyst sees can shift the odds of "two hours" against "three hours" by a factor of e = 2.72 at most.
# Smaller differences are hidden better, in proportion. `honest=0.9` counts on nine of ten people: fewer than 900
# reports will be refused.

# %%
query = ms.Mean(ms.Integers(0, 600, unit="min"))
target = ms.Target(epsilon=1, delta=1e-6, distance=60)
plan = ms.plan(query, target, users=1_000, honest=0.9)
plan

# %% [markdown]
# Every protocol in the table keeps the promise. They differ in how far off the mean is, in what one report gives away
# if the shuffler is dishonest after all, and in how many bits a person sends. The chosen one is marked.

# %%
plan.plot()

# %% [markdown]
# ## Collect
#
# Three roles: everybody randomizes at home, a shuffler mixes all messages and forgets who sent which, and the analyst
# estimates. Here one notebook plays all three. Answers are invented, and 950 people take part.
#
# `Randomness.seeded` makes this page the same every time, and it makes a release **unsafe**: whoever knows the seed can
# take the noise away again. The release says so, in the last line of its card. Leave it out in earnest.

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
# ## How far off are such answers?
#
# A simulation tells it before anybody is asked, without any data.

# %%
ms.simulate(plan)

# %% [markdown]
# What one report gives away, should the shuffler collude with the analyst, is the second promise of the card above. It
# is weaker: to be weighed before anybody is asked. [What is promised](../guarantee.md) says more.
