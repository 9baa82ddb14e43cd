"""The same chart for a telephone: panels below each other, as wide as the screen, in letters of the same size."""

from __future__ import annotations

from typing import Any

PHONE_WIDTH = 346
"""Pixels that a chart has on a screen of 400: the margins of the page and of a section are in report/templates/style.css."""
SMALLEST_TEXT, TEXT = 9.0, 12.0
MAX_NARROW_WIDTH = PHONE_WIDTH * TEXT / SMALLEST_TEXT
"""A drawing wider than that would have letters too small to read, and is left to scroll."""
MIN_PANEL_WIDTH = 170  # pixels between the axes, below which nothing can be seen
MAX_TICKS = 4


def narrow_spec(spec: dict[str, Any], width: float) -> dict[str, Any]:
    """No panel wider than that; what stood side by side stands below each other, and so do the lines of a legend."""
    changed = {key: value if key == "data" else _inside(value, width) for key, value in spec.items()}
    if "hconcat" in changed:
        changed["vconcat"] = changed.pop("hconcat")
    if "concat" in changed:
        changed["columns"] = 1
    wide = spec.get("width")
    if isinstance(wide, int | float) and wide > width:
        changed["width"] = width
        if _to_scale(spec):
            changed["height"] = round(spec["height"] * width / wide)
    return changed


def _inside(value: Any, width: float) -> Any:
    if isinstance(value, list):
        return [_inside(part, width) for part in value]
    if not isinstance(value, dict):
        return value
    changed = narrow_spec(value, width)
    if isinstance(value.get("columns"), int):
        changed["columns"] = 1
    if isinstance(value.get("tickCount"), int):
        changed["tickCount"] = min(MAX_TICKS, value["tickCount"])
    return changed


def _to_scale(spec: dict[str, Any]) -> bool:
    """Whether a step across is as long as a step up, as on a map."""
    axes = [spec.get("encoding", {}).get(name, {}).get("scale") or {} for name in ("x", "y")]
    if not isinstance(spec.get("height"), int | float) or not all("domain" in axis and axis.get("type") is None for axis in axes):
        return False
    across, up = (abs(axis["domain"][-1] - axis["domain"][0]) for axis in axes)
    return bool(across and up) and abs(spec["width"] / across * up / spec["height"] - 1.0) < 0.02
