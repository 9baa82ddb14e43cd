# %% [markdown]
# # Counts of categories
#
# What do people drink in the morning? 3,000 people choose one of four answers, and no single answer
# should be revealed.

# %%
import numpy as np

import metricshuffle as ms

# %% [markdown]
# Labels have no order: any two of them are at distance 1, so epsilon 1 at distance 1 hides every
# answer among all others. List all possible answers, with one more for the rest.

# %%
drinks = ms.Categories(["tea", "coffee", "water", "other"])
query, target = ms.Histogram(drinks), ms.Target(epsilon=1, delta=1e-6, distance=1)
plan = ms.plan(query, target, users=3_000, honest=0.9)
plan

# %% [markdown]
# The plan compares two kinds of protocols. With noisy vectors each person sends random residues,
# and only their noisy sums can be seen. With single reports (k-ary randomized response) each person
# sends one label, sometimes not their own. Noisy vectors are more exact; single reports have a few
# bits, and hide more from a dishonest shuffler.

# %%
plan.plot()

# %% [markdown]
# ## Ask
#
# The answers are simulated. The randomness is seeded, so that this page is the same every time,
# which makes the release **unsafe**; leave the seed out in a real collection.

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
# What if a report may have at most epsilon 4 if the shuffler is dishonest? `max_local_epsilon` sets
# that limit, and the plan chooses the best protocol under it.

# %%
careful = ms.plan(query, target, users=3_000, honest=0.9, max_local_epsilon=4)
careful.choice

# %% [markdown]
# [Count categories and draw maps](../how-to/count-categories-and-draw-maps.md) does the same with
# commands, and explains each column of the table.
