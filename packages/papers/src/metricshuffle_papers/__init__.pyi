# What `import metricshuffle_papers` offers, each name once: type checkers read it here, and
# __init__.py finds here where a name lives.
from metricshuffle_papers.compare.linear import LinearComparison as LinearComparison
from metricshuffle_papers.compare.linear import compare_linear as compare_linear
from metricshuffle_papers.compare.users import UserComparison as UserComparison
from metricshuffle_papers.compare.users import compare_users as compare_users

__all__: list[str]
