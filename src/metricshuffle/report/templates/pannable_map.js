"use strict";
(() => {
  const { answer, outlines, towns, bounds, source, numbers } = JSON.parse(document.getElementById("map-data").textContent);
  const place = document.getElementById("map");
  const fail = () => { place.hidden = true; document.getElementById("map-fails").hidden = false; };
  if (!document.createElement("canvas").getContext("webgl2")) { fail(); return; }
  const strongest = Math.max(1e-300, ...answer.features.map((feature) => feature.properties.share ?? 0));
  const shade = ["sqrt", ["min", 1, ["max", 0, ["/", ["coalesce", ["get", "share"], strongest], strongest]]]];
  const holds = ["==", ["get", "zero_inside"], true];
  const blue = "#0072b2";
  const shape = (kinds, extra) => ["all", ["in", ["geometry-type"], ["literal", kinds]], ...(extra ? [extra] : [])];
  const map = new maplibregl.Map({
    container: place,
    bounds,
    fitBoundsOptions: { padding: 16 },
    attributionControl: { compact: false, customAttribution: source },
    dragRotate: false,
    style: {
      version: 8,
      sources: {
        answer: { type: "geojson", data: answer },
        outlines: { type: "geojson", data: outlines },
      },
      layers: [
        { id: "paper", type: "background", paint: { "background-color": "#f7f8fa" } },
        { id: "areas", type: "fill", source: "answer", filter: shape(["Polygon", "MultiPolygon"]), paint: { "fill-color": blue, "fill-opacity": shade } },
        { id: "edges", type: "line", source: "answer", filter: shape(["Polygon", "MultiPolygon"], ["!", holds]), paint: { "line-color": blue, "line-width": 0.5, "line-opacity": 0.5 } },
        { id: "dashes", type: "line", source: "answer", filter: shape(["Polygon", "MultiPolygon"], holds), paint: { "line-color": blue, "line-width": 0.75, "line-opacity": 0.6, "line-dasharray": [2, 2] } },
        { id: "trips", type: "line", source: "answer", filter: shape(["LineString"]), paint: { "line-color": blue, "line-width": ["*", 6, shade], "line-opacity": 0.7 } },
        { id: "points", type: "circle", source: "answer", filter: shape(["Point"]), paint: { "circle-color": blue, "circle-radius": ["+", 2, ["*", 12, shade]], "circle-opacity": 0.7 } },
        { id: "coasts", type: "line", source: "outlines", paint: { "line-color": "#4a5568", "line-width": 1 } },
      ],
    },
  });
  map.on("error", (event) => { place.dataset.error = event.error?.message ?? "unknown"; });
  map.addControl(new maplibregl.NavigationControl({ showCompass: false }));
  map.addControl(new maplibregl.ScaleControl());
  const most = 15;
  const shown = new Map();
  const nameTowns = () => {
    const view = map.getBounds();
    const taken = [];
    const wanted = new Set();
    for (const town of towns) {
      if (wanted.size === most) break;
      if (!view.contains(town[1])) continue;
      const { x, y } = map.project(town[1]);
      const right = x + 7.5 * (town[0].length + 2);
      if (taken.some((box) => x < box.right && box.x < right && Math.abs(y - box.y) < 14)) continue;
      taken.push({ x, y, right });
      wanted.add(town);
    }
    for (const [town, marker] of shown) if (!wanted.has(town)) { marker.remove(); shown.delete(town); }
    for (const town of wanted) {
      if (shown.has(town)) continue;
      const element = document.createElement("div");
      element.className = "town";
      element.textContent = town[0];
      element.setAttribute("role", "img");
      element.setAttribute("aria-label", town[0]);
      shown.set(town, new maplibregl.Marker({ element, anchor: "left" }).setLngLat(town[1]).addTo(map));
    }
  };
  map.on("moveend", nameTowns);
  nameTowns();
  for (const layer of ["areas", "trips", "points"]) {
    map.on("click", layer, (event) => {
      const box = document.createElement("div");
      for (const line of numbers[event.features[0].id]) {
        const row = document.createElement("div");
        row.textContent = line;
        box.append(row);
      }
      new maplibregl.Popup().setLngLat(event.lngLat).setDOMContent(box).addTo(map);
    });
  }
  map.once("idle", () => { place.dataset.drawn = "true"; });
})();
