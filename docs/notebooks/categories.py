# %% [markdown]
# # Counts of categories
#
# What do people drink in the morning? Four answers, 3,000 people, and nobody's answer is to be found out.

# %%
import numpy as np

import metricshuffle as ms

# %% [markdown]
# Labels have no order: any two of them are at distance 1, so that epsilon 1 at distance 1 hides every answer among all
# others. List everything that may be said, with one more for the rest.

# %%
drinks = ms.Categories(["tea", "coffee", "water", "other"])
query, target = ms.Histogram(drinks), ms.Target(epsilon=1, delta=1e-6, distance=1)
plan = ms.plan(query, target, users=3_000, honest=0.9)
plan

# %% [markdown]
# Two kinds of protocols are compared here. With noisy vectors everybody sends random residues, and only their noisy sums
# can be seen. With single reports (k-ary randomized response) everybody sends one label, which is sometimes another one
# than hers. The first is the more exact; the second sends a few bits, and hides more from a
# shuffler that is dishonest.

# %%
plan.plot()

# %% [markdown]
# ## Ask
#
# The answers are invented. The randomness is seeded, which makes the release **unsafe** and this page the same every
# time; leave it out in earnest.

# %%
generator = np.random.default_rng(5)
labels = ["tea", "coffee", "water", "other"]
answers = generator.choice(labels, p=[0.25, 0.5, 0.2, 0.05], size=2_800)

release = plan.run(answers, ms.Randomness.seeded(5))
release

# %%
release.plot()

# %% [markdown]
# ## Less trust, fewer bits
#
# What if a report may leave no more than epsilon 4 to a dishonest shuffler? `max_local_epsilon` asks for that, and the
# plan takes what is best under it.

# %%
careful = ms.plan(query, target, users=3_000, honest=0.9, max_local_epsilon=4)
careful.choice

# %% [markdown]
# [Count categories and draw maps](../how-to/count-categories-and-draw-maps.md) has the same as commands, and says what
# each column of the table means.
