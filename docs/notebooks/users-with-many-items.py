# %% [markdown]
# # Users with many items
#
# Everybody holds not one value but many: the hours of a month's 20 check-ins. All of them are to be protected together,
# not one by one.

# %%
import numpy as np

import metricshuffle as ms
import metricshuffle_papers as papers

# %% [markdown]
# ## Which changes are hidden
#
# The distance of two users is the earth mover's distance of their items: moving half of them by two hours is a distance
# of one hour. Here such a change is hidden at epsilon 4, and half of it at epsilon 2.

# %%
people = ms.users_of(ms.Space(ms.Integers(0, 23, unit="h")), items=20)
target = ms.Target(epsilon=4, delta=1e-6, distance=1)
plan = ms.plan(ms.UserHistogram(people), target, users=1_000, honest=0.9)
plan

# %% [markdown]
# The plan also says what is *not* promised: what it costs to replace all of one user's items.

# %%
print(plan.task.full_replacement)

# %% [markdown]
# ## Ask
#
# Invented people: early ones and late ones, 20 check-ins each. Seeded, so that this page stays the same: **unsafe**, and
# for a page like this one only.

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
# Hiding whole users, whatever they hold, is ordinary user-level privacy. Hiding moves is less, and costs less noise. By
# how much depends on the numbers; `compare_users` of `metricshuffle-papers` simulates both.

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
# [Protect users with many items](../how-to/protect-users-with-many-items.md) goes on with files, trees and curators, and
# [when it is worth it](../users.md) has the whole comparison.
