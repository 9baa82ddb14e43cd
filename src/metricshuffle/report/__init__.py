"""Pages for people: reports, comparisons, reproductions. Templates and charts; every number comes from below."""
