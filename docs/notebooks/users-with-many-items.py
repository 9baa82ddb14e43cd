# %% [markdown]
# # Users with many items
#
# Each person holds not one value but many: the hours of a month's 20 check-ins. All of them should
# be protected together, not one by one.

# %%
import numpy as np

import metricshuffle as ms
import metricshuffle_papers as papers

# %% [markdown]
# ## Which changes are hidden
#
# The distance between two users is the earth mover's distance between their items: moving half of
# them by two hours is a distance of one hour. Here such a change is hidden at epsilon 4, and half
# of it at epsilon 2.

# %%
people = ms.users_of(ms.Space(ms.Integers(0, 23, unit="h")), items=20)
target = ms.Target(epsilon=4, delta=1e-6, distance=1)
plan = ms.plan(ms.UserHistogram(people), target, users=1_000, honest=0.9)
plan

# %% [markdown]
# The plan also states what is *not* promised: the cost of replacing all of one user's items.

# %%
print(plan.task.full_replacement)

# %% [markdown]
# ## Ask
#
# We simulate early and late people with 20 check-ins each. The randomness is seeded, so that this
# page stays the same: **unsafe**, and only for a page like this one.

# %%
generator = np.random.default_rng(11)
usual = np.where(generator.random((1_000, 1)) < 0.6, 8, 19)
drawn = usual + generator.normal(0, 2, size=(1_000, 20))
hours = drawn.round().clip(0, 23).astype(int)

release = plan.run(hours.tolist(), ms.Randomness.seeded(11))
release

# %%
release.plot()

# %% [markdown]
# ## Is it worth it?
#
# Ordinary user-level privacy hides whole users, whatever they hold. Hiding moves is weaker, and
# needs less noise. How much less depends on the numbers; `compare_users` of `metricshuffle-papers`
# simulates both.

# %%
papers.compare_users(
    people,
    users=1_000,
    epsilon=4,
    rate=4,
    delta=1e-6,
    runs=5,
    with_items=False,
)

# %% [markdown]
# [Protect users with many items](../how-to/protect-users-with-many-items.md) continues with files,
# trees and curators, and [when it is worth it](../users.md) has the whole comparison.
