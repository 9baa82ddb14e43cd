/** Places in degrees as metres on a plane: azimuthal and equidistant about the middle of a box, on the WGS84 ellipsoid. */

const EQUATOR = 6_378_137;
const FLATTENING = 1 / 298.257223563;
const POLAR = EQUATOR * (1 - FLATTENING);
const EDGE_SAMPLES = 4097;
const DEGREE = Math.PI / 180;

/** South, west, north and east in degrees. */
export type Box = readonly [number, number, number, number];

/** East and north of the middle, in metres: distance and direction along the shortest line (Vincenty 1975; to within a millimetre). */
function fromMiddle(latitude0: number, longitude0: number, latitude: number, longitude: number): [number, number] {
  if (latitude === latitude0 && longitude === longitude0) return [0, 0];
  const difference = (longitude - longitude0) * DEGREE;
  const reduced0 = Math.atan((1 - FLATTENING) * Math.tan(latitude0 * DEGREE));
  const reduced = Math.atan((1 - FLATTENING) * Math.tan(latitude * DEGREE));
  const [sin0, cos0, sin1, cos1] = [Math.sin(reduced0), Math.cos(reduced0), Math.sin(reduced), Math.cos(reduced)];
  let lambda = difference;
  for (let round = 0; ; round++) {
    const across = cos1 * Math.sin(lambda);
    const along = cos0 * sin1 - sin0 * cos1 * Math.cos(lambda);
    const sinSigma = Math.hypot(across, along);
    const cosSigma = sin0 * sin1 + cos0 * cos1 * Math.cos(lambda);
    const sigma = Math.atan2(sinSigma, cosSigma);
    const sinAlpha = sinSigma === 0 ? 0 : (cos0 * cos1 * Math.sin(lambda)) / sinSigma;
    const cos2Alpha = 1 - sinAlpha * sinAlpha;
    const cos2Middle = cos2Alpha === 0 ? 0 : cosSigma - (2 * sin0 * sin1) / cos2Alpha;
    const c = (FLATTENING / 16) * cos2Alpha * (4 + FLATTENING * (4 - 3 * cos2Alpha));
    const before = lambda;
    lambda =
      difference +
      (1 - c) * FLATTENING * sinAlpha * (sigma + c * sinSigma * (cos2Middle + c * cosSigma * (2 * cos2Middle * cos2Middle - 1)));
    if (Math.abs(lambda - before) > 1e-14 && round < 50) continue;
    const u2 = (cos2Alpha * (EQUATOR * EQUATOR - POLAR * POLAR)) / (POLAR * POLAR);
    const a = 1 + (u2 / 16384) * (4096 + u2 * (-768 + u2 * (320 - 175 * u2)));
    const b = (u2 / 1024) * (256 + u2 * (-128 + u2 * (74 - 47 * u2)));
    const middle2 = cos2Middle * cos2Middle;
    const correction =
      b *
      sinSigma *
      (cos2Middle +
        (b / 4) * (cosSigma * (2 * middle2 - 1) - (b / 6) * cos2Middle * (4 * sinSigma * sinSigma - 3) * (4 * middle2 - 3)));
    const distance = POLAR * a * (sigma - correction);
    const azimuth = Math.atan2(across, along);
    return [distance * Math.sin(azimuth), distance * Math.cos(azimuth)];
  }
}

/** A box on a plane whose left bottom corner is 0, 0. */
export class Plane {
  readonly #middle: readonly [number, number];
  readonly #corner: readonly [number, number];

  constructor(readonly box: Box) {
    const [south, west, north, east] = box;
    this.#middle = [(south + north) / 2, (west + east) / 2];
    // the image of a box is bounded by that of its edges; the widest latitude is the one nearest to the equator
    const ends: [number, number] = [Infinity, Infinity];
    const widest = Math.min(Math.max(0, south), north);
    for (let sample = 0; sample <= EDGE_SAMPLES; sample++) {
      const part = sample / (EDGE_SAMPLES - 1);
      const latitude = sample === EDGE_SAMPLES ? widest : south + (north - south) * part;
      const places = [
        [latitude, west],
        [latitude, east],
        ...(part > 1 ? [] : [[south, west + (east - west) * part] as const, [north, west + (east - west) * part] as const]),
      ] as const;
      for (const [lat, lon] of places) {
        const [x, y] = fromMiddle(...this.#middle, lat, lon);
        ends[0] = Math.min(ends[0], x);
        ends[1] = Math.min(ends[1], y);
      }
    }
    this.#corner = ends;
  }

  /** Metres east and north of the left bottom corner. */
  metres(latitude: number, longitude: number): [number, number] {
    const [x, y] = fromMiddle(...this.#middle, latitude, longitude);
    return [x - this.#corner[0], y - this.#corner[1]];
  }
}
