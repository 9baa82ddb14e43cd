# %% [markdown]
# # A private map
#
# Where do people live? 3,000 people report it with noise. The resulting map is accurate about all
# of them together and reveals little about any of them.

# %%
import numpy as np

import metricshuffle as ms

# %% [markdown]
# ## The map and the guarantee
#
# The box is south, west, north, east in degrees, and it is public: never take it from the data.
# Cells are 1,500 m wide. A move of 3 km should be hidden at epsilon 2, and a smaller one better.

# %%
grid = ms.Grid.from_box(46.92, 7.38, 46.98, 7.50, cell=1500)
target = ms.Target(epsilon=2, delta=1e-6, distance=3000)
plan = ms.plan(ms.Histogram(grid), target, users=3_000, honest=0.9)
plan

# %% [markdown]
# ## Simulated people
#
# Two thirds live around one place and the others around another one. `cells_at` takes latitudes and
# longitudes; with `clamp=True` a person outside the box is counted in the nearest cell. You can
# also pass a data frame directly: `plan.run(frame, column=["lat", "lon"])`.
#
# As in all of these notebooks the randomness is seeded, so that you get the same output. Such a
# release is **unsafe**, and says so.

# %%
generator = np.random.default_rng(3)
in_town = generator.random((2_900, 1)) < 2 / 3
around = np.where(in_town, [46.948, 7.447], [46.965, 7.400])
places = around + generator.normal(0, [0.006, 0.009], size=(2_900, 2))
cells = grid.cells_at(places[:, 0], places[:, 1], clamp=True)

release = plan.run(cells, ms.Randomness.seeded(3))
release

# %% [markdown]
# ## The picture
#
# Darker cells have more people. Cells whose interval contains zero are drawn differently: perhaps
# nobody lives there.

# %%
release.plot()

# %% [markdown]
# The table behind it has a row for each cell, with its corners in degrees. It is close to the
# truth, which is known only for simulated people:

# %%
rows = cells[:, 1] * grid.width + cells[:, 0]
truth = np.bincount(rows, minlength=len(release.value)) / len(cells)
errors = np.abs(release.value["share"] - truth)
print(f"largest error of a share: {100 * errors.max():.2f} % of the people")

# %% [markdown]
# [Make a private map](../how-to/make-a-private-map.md) does the same with files and commands.
# [Private maps](../maps.md) says how exact such maps are, and what they cost.
